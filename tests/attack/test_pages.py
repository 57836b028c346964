"""What a colleague meets on the pages of a run whose script has laid traps in its results, its log and its journal: links, pipes, names,
sizes."""

from __future__ import annotations

import http.client
import io
import re
import urllib.parse
import zipfile

import pytest

from tests.attack.conftest import Attack
from tests.attack.hostile.results import NAMES
from tests.attack.visitor import Answer, Visitor, raw

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
TABS = ("", "overview/", "logs/", "results/", "media/", "notes/")
DL = "/platform/rest/deeplearning/v1"


@pytest.fixture(scope="module")
def alice(attacked: Attack) -> Visitor:
    """Who is an editor in Charlie's project."""
    return attacked.scene.alice.browser


@pytest.fixture(scope="module")
def kept_secret(attacked: Attack) -> list[bytes]:
    """What must be in no answer: the studio's key, and how its database begins."""
    return [(attacked.scene.studio.home / "secrets" / "secret_key").read_bytes(), b"SQLite format 3\0", attacked.scene.mark.encode()]


def shows_nothing_of(answer: Answer, kept_secret: list[bytes]) -> bool:
    return not any(each in answer.body for each in kept_secret)


def is_safe(answer: Answer) -> bool:
    """Nothing that a script wrote is a page of the studio's: it is an attachment, or escaped under a policy that runs no foreign script."""
    policy = answer.headers.get("Content-Security-Policy", "")
    return "default-src 'none'" in policy and answer.headers.get("X-Content-Type-Options") == "nosniff"


def test_every_page_of_it_opens_and_runs_nothing(attacked: Attack, alice: Visitor, kept_secret: list[bytes]) -> None:
    experiment = attacked.scene.studio.rows("SELECT experiment_id FROM experiments_trainingrun WHERE id = ?", attacked.run)[0][0]
    pages = [f"/runs/{attacked.run}/{tab}" for tab in TABS] + [f"/experiments/{experiment}/", f"/experiments/{experiment}/?format=csv"]
    pages += [f"/runs/{attacked.run}/logs/?name={name}" for name in ("*", "driver", "worker-1", "worker-2", "worker-3", "secrets")]
    pages += [f"/runs/{attacked.run}/logs/?q=ERROR&regex=1", f"/runs/{attacked.run}/logs/?error=1", f"/runs/{attacked.run}/series"]
    pages += [f"/projects/{attacked.scene.charlie.project}/{tab}" for tab in ("", "jobs/", "assets/")]
    for path in pages:
        answer = alice.get(path)
        assert answer.status in (200, 302), (path, answer.status)
        assert shows_nothing_of(answer, kept_secret), path
        assert is_safe(answer), path
        if answer.headers.get_content_type() == "text/html":
            assert "<script>alert" not in answer.text, path
            assert "<img src=x" not in answer.text, path
        if answer.headers.get_content_type() == "text/csv":
            assert not re.search(r"(^|[\n,\"])=", answer.text), "no cell is a formula"


def test_no_link_or_pipe_of_it_leads_anywhere(attacked: Attack, alice: Visitor, kept_secret: list[bytes]) -> None:
    folder = attacked.scene.studio.folder(attacked.run)
    links = [path.relative_to(folder) for path in (folder / "model").iterdir() if path.is_symlink() or path.is_fifo()]
    assert len(links) > 50
    traps = [str(each) for each in links[:12]] + [f"{each}/secret_key" for each in links if "folder" in each.name][:12]
    traps += ["model/upwards/db.sqlite3", "log/secrets/secret_key", "log/worker-1/console.log", "checkpoint/engine.pt", "model/pipe"]
    for number, path in enumerate(traps):
        way = ("files", "look", "pictures")[number % 3]
        answer = alice.get(f"/runs/{attacked.run}/{way}/{urllib.parse.quote(path)}")
        assert answer.status == 404, (way, path, answer.status)
        assert shows_nothing_of(answer, kept_secret)
    for name in ("worker-1", "worker-2", "secrets", "..", "%2e%2e"):
        answer = alice.get(f"/runs/{attacked.run}/log/{name}/download")
        assert answer.status == 404, name
    media = alice.get(f"/runs/{attacked.run}/media/picture?file=../../secrets/secret_key&at=0&size=64")
    assert media.status in (400, 404)


@pytest.mark.parametrize(
    "path",
    [
        *("/etc/passwd", "//etc/passwd", "../../db.sqlite3", "..%2f..%2fdb.sqlite3", "%2e%2e/%2e%2e/db.sqlite3", "%252e%252e/db.sqlite3"),
        *("model/..;/..;/db.sqlite3", "model/../../../db.sqlite3", "model\\..\\..\\..\\db.sqlite3", "file:///etc/passwd", "model/%00"),
        *("%ef%bc%8e%ef%bc%8e/db.sqlite3", "%c0%ae%c0%ae/db.sqlite3", "model/./../../secrets/secret_key", "a/" * 300 + "x"),
    ],
)
def test_no_spelling_of_a_path_leads_out_of_a_run(path: str, attacked: Attack, kept_secret: list[bytes]) -> None:
    """Sent as it stands: a browser, and Python's own client, would tidy it up."""
    charlie = attacked.scene.charlie.browser
    for way in ("files", "look", "pictures"):
        head = f"GET /runs/{attacked.run}/{way}/{path} HTTP/1.1\r\nHost: 127.0.0.1:{attacked.scene.studio.port}\r\nConnection: close\r\n"
        status, said = raw(charlie.url, f"{head}Cookie: sessionid={charlie.cookie('sessionid')}\r\n\r\n".encode())
        assert status in (400, 404), (way, status)
        assert not any(each.decode("latin-1") in said for each in kept_secret)


def test_names_that_are_markup_formulas_or_ways_out_are_plain_names(attacked: Attack, alice: Visitor) -> None:
    page = alice.get(f"/runs/{attacked.run}/results/").text
    assert "<img src=x" not in page
    assert 'onmouseover="alert' not in page
    assert "3 files have line breaks or control characters in their names" in page
    for name in (each for each in NAMES if not re.search(r"[\x00-\x1f]", each)):
        answer = alice.get(f"/runs/{attacked.run}/files/model/{urllib.parse.quote(name)}")
        assert answer.status == 200, name
        assert answer.headers["Content-Disposition"].startswith("attachment"), name
        assert "\n" not in answer.headers["Content-Disposition"], name
        assert is_safe(answer), name
        assert alice.get(f"/runs/{attacked.run}/pictures/model/{urllib.parse.quote(name)}").status == 404, (
            "HTML under any name is no picture"
        )


def test_the_zip_of_its_results_unpacks_into_one_folder_on_every_system(attacked: Attack, alice: Visitor) -> None:
    """As far as the file in it that is 900 GB of nothing, which would be sent for hours; meanwhile the studio answers."""
    link = http.client.HTTPConnection("127.0.0.1", attacked.scene.studio.port, timeout=30)
    link.request("GET", f"/runs/{attacked.run}/results.zip", headers={"Cookie": f"sessionid={alice.cookie('sessionid')}"})
    with link.getresponse() as answer:
        data = answer.read1(1 << 16)
        while b"model/large.pth" not in data:
            data += answer.read1(1 << 16)
        assert alice.get("/projects/").status == 200
    link.close()
    heads = [each.start() for each in re.finditer(b"PK\x03\x04", data)]
    names = [data[at + 30 : at + 30 + int.from_bytes(data[at + 26 : at + 28], "little")].decode(errors="replace") for at in heads]
    assert any("evil.bat" in name for name in names)
    assert not [name for name in names if "\\" in name or name.startswith("/") or ".." in name.split("/")], names


def test_a_model_full_of_holes_fills_nobodys_disk(attacked: Attack) -> None:
    """The zip of a model is made on the disk before it is sent: 900 GB that take no room of the run's would."""
    charlie = attacked.scene.charlie
    tmp = attacked.scene.studio.home / "tmp"
    answer = charlie.browser.get(f"{DL}/execs/{attacked.run}/result", X_Auth_Token=charlie.token, Accept="application/json")
    assert (answer.status, "no room to make a zip of it" in answer.text) == (400, True), answer.text[:300]
    assert sum(path.stat().st_size for path in tmp.iterdir()) < 1 << 20
    part = charlie.browser.get(f"/runs/{attacked.run}/files/model/large.pth", Range="bytes=0-9")
    assert (part.status, part.body) == (206, bytes(10))


def test_what_its_log_says_to_terminals_reaches_none(attacked: Attack) -> None:
    scene = attacked.scene
    assert "owned" not in scene.studio.output.read_text(errors="replace")
    tail = scene.alice.browser.get(
        f"{DL}/scheduler/applications/{attacked.run}/driver/logs/stdout?lastlines=20", X_Auth_Token=scene.alice.token
    )
    assert tail.status == 200
    assert len(tail.body) < 4 << 20
    with zipfile.ZipFile(io.BytesIO(scene.charlie.browser.get(f"/versions/{version(attacked)}/download/").body)) as code:
        assert "targets.json" in code.namelist()


def version(attacked: Attack) -> int:
    ((found,),) = attacked.scene.studio.rows("SELECT version_id FROM experiments_trainingrun WHERE id = ?", attacked.run)
    return int(found)
