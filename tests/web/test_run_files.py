"""A run's files in the browser: downloads, what is shown in place, all of them as a zip."""

from __future__ import annotations

import io
import re
import zipfile

from django.urls import reverse

from experiments.files import runfiles
from tests.web.conftest import As
from tests.web.seed import PICTURE, Seeded


def test_files_come_as_attachments_and_nothing_outside_the_run_comes(studio: Seeded, as_: As) -> None:
    client, run = as_(studio.alice), studio.completed
    answer = client.get(reverse("run_file", args=[run.pk, "model/model_epoch_20.pth"]))
    assert len(b"".join(answer)) == 184_320
    assert answer["Content-Disposition"] == 'attachment; filename="model_epoch_20.pth"'
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in answer["Content-Security-Policy"]
    (runfiles.folder(run) / "page.html").write_text("<script>alert(1)</script>")
    page = client.get(reverse("run_file", args=[run.pk, "page.html"]))
    assert page["Content-Type"] == "application/octet-stream"
    (runfiles.folder(run) / "link").symlink_to("/etc/passwd")
    base = reverse("run_file", args=[run.pk, "x"])[:-1]
    for path in (
        "../../db.sqlite3",
        "..%2f..%2fdb.sqlite3",
        "%2e%2e/%2e%2e/db.sqlite3",
        "%252e%252e/x",
        "link",
        "//etc/passwd",
        "model",
        "nothing",
    ):
        assert client.get(base + path).status_code == 404, path
    log = client.get(reverse("run_log_file", args=[run.pk, "driver"]))
    assert log["Content-Disposition"] == f'attachment; filename="run-{run.pk}-driver.log"'
    assert b"step 0" in b"".join(log)


def test_a_download_goes_on_where_it_stopped(studio: Seeded, as_: As) -> None:
    client, run = as_(studio.alice), studio.completed
    path, address = runfiles.folder(run) / "weights.bin", reverse("run_file", args=[run.pk, "weights.bin"])
    path.write_bytes(bytes(range(256)))

    def part(wanted: str, **headers: str) -> tuple[int, str | None, bytes]:
        answer = client.get(address, headers={"range": wanted, **headers})
        body = b"".join(answer)
        assert answer.status_code == 416 or int(answer["Content-Length"]) == len(body)
        return answer.status_code, answer.get("Content-Range"), body

    whole = client.get(address)
    assert (whole.status_code, whole["Accept-Ranges"], b"".join(whole)) == (200, "bytes", path.read_bytes())
    assert part("bytes=250-") == (206, "bytes 250-255/256", bytes(range(250, 256)))
    assert part("bytes=10-19", **{"if-range": whole["ETag"]}) == (206, "bytes 10-19/256", bytes(range(10, 20)))
    assert part("bytes=-6") == (206, "bytes 250-255/256", bytes(range(250, 256)))
    assert part("bytes=0-9999") == (206, "bytes 0-255/256", path.read_bytes())
    for beyond in ("bytes=256-", "bytes=-0"):
        assert part(beyond) == (416, "bytes */256", b"")
    for odd in ("bytes=-", "bytes=9-2", "bytes=0-1,5-6", "lines=0-1", "bytes=a-b", "bytes=" + "9" * 40 + "-"):
        assert part(odd) == (200, None, path.read_bytes()), odd
    path.write_bytes(b"another")
    assert part("bytes=3-", **{"if-range": whole["ETag"]}) == (200, None, b"another"), "never half of one and half of another"


def test_text_is_shown_escaped_and_a_picture_only_by_its_content(studio: Seeded, as_: As) -> None:
    client, run = as_(studio.alice), studio.completed
    folder, page = runfiles.folder(run), b"<script>alert(1)</script>"
    (folder / "page.html").write_bytes(page)
    (folder / "page.png").write_bytes(page)
    (folder / "plot.svg").write_bytes(b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>")
    (folder / "picture.txt").write_bytes(PICTURE)
    (folder / "long.txt").write_text("1,2\n" * 100_000)
    (folder / "link.png").symlink_to("/etc/passwd")
    with (folder / "huge.png").open("wb") as huge:
        huge.write(PICTURE)
        huge.truncate(21 << 20)

    def look(path: str) -> str:
        return client.get(reverse("run_look", args=[run.pk, path])).content.decode()

    assert "&lt;script&gt;alert(1)" in look("page.html")
    assert page.decode() not in look("page.html") + look("page.png")
    assert "Its beginning; the whole file is 400 KB" in look("long.txt").replace("\xa0", " ")
    assert len(look("long.txt")) < 100_000
    assert "No preview. A model or checkpoint of PyTorch" in look("model/model_epoch_20.pth")
    assert reverse("run_file", args=[run.pk, "model/model_epoch_20.pth"]) in look("model/model_epoch_20.pth").split("No preview")[1]
    assert reverse("run_picture", args=[run.pk, "picture.txt"]) in look("picture.txt")
    for path in ("page.html", "page.png", "plot.svg", "huge.png", "link.png", "nothing", "../1/confusion.png"):
        assert client.get(reverse("run_picture", args=[run.pk, "x"])[:-1] + path).status_code == 404, path
    picture = client.get(reverse("run_picture", args=[run.pk, "picture.txt"]))
    assert (picture["Content-Type"], picture["X-Content-Type-Options"]) == ("image/png", "nosniff")
    assert picture["Content-Security-Policy"] == "default-src 'none'; sandbox"
    shown = client.get(reverse("run_results", args=[run.pk])).content.decode()
    assert re.findall(r'src="[^"]+/pictures/([^"?]+)', shown) == ["confusion.png"], "named and being a picture, and not large"


def test_tables_arrays_and_json_are_laid_out_and_escaped(studio: Seeded, as_: As) -> None:
    client, run = as_(studio.alice), studio.completed

    def look(name: str, **asked: str) -> str:
        return client.get(reverse("run_look", args=[run.pk, f"tables/{name}"]), asked).content.decode()

    odd = look("odd.csv")
    assert "<td>&lt;script&gt;alert(1)&lt;/script&gt;</td>" in odd
    assert '<td class="number">12</td>' in odd
    assert "caf\\xe9" in odd
    assert "Not all of it is UTF-8" in odd
    as_text = look("odd.csv", **{"as": "text"})
    assert "<td>" not in as_text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;,3" in as_text
    assert "The first 300 of 400 rows, the first 40 of 60 columns." in look("wide.csv")
    assert "<dd>32,000 of float32</dd>" in look("embeddings.npy")
    arrays = look("arrays.npz")
    assert [name in arrays for name in ("embeddings", "labels", "names")] == [True] * 3
    assert "<td>&lt;b&gt;two&lt;/b&gt;</td>" in arrays
    assert "{&quot;epoch&quot;: 0, &quot;slots&quot;: [0, 1]}" in look("steps.jsonl")
    assert "  &quot;accuracy&quot;: 0.9861,\n" in look("report.json")
    assert max(len(look(name)) for name in ("wide.csv", "embeddings.npy", "arrays.npz")) < 800_000


def test_all_files_come_as_one_zip_without_links(studio: Seeded, as_: As) -> None:
    run = studio.completed
    (runfiles.folder(run) / "link").symlink_to("/etc/passwd")
    answer = as_(studio.alice).get(reverse("run_archive", args=[run.pk]))
    archive = zipfile.ZipFile(io.BytesIO(b"".join(answer)))
    assert archive.testzip() is None
    names = {name.split("/", 1)[1] for name in archive.namelist()}
    assert {"journal.jsonl", "model/model_epoch_20.pth", "checkpoint/engine_00240.pt", "log/driver/console.log"} <= names
    assert "link" not in names
