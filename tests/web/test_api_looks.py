"""What pages let one look at, by the API: previews of files, media, differences of versions, utilization, what a change would do."""

from __future__ import annotations

from typing import Any

import pytest

from experiments import services
from experiments.files import runfiles
from experiments.models import DefinitionVersion, Project, TrainingRun, User
from tests import cast
from tests.web import api, written
from tests.web.api import Script
from tests.web.seed import Seeded
from training_runtime import media
from training_runtime.media import Entry, Histogram, Tag


@pytest.fixture
def run(alice: User, project: Project) -> TrainingRun:
    made = cast.run(project, by=alice)
    put(made, written.looks() | {f"model/{name}": data for name, data in written.tabular().items()})
    return made


@pytest.fixture
def script(alice: User) -> Script:
    return api.of(alice)


def put(run: TrainingRun, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        path = runfiles.make(run) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def got(script: Script, path: str) -> Any:
    answer = script.get(path)
    assert answer.status_code == 200, answer.content
    return answer.json()


def test_a_file_is_looked_into_as_a_table_as_arrays_and_as_text(run: TrainingRun, script: Script) -> None:
    at = f"/runs/{run.pk}/previews/model"
    table = got(script, f"{at}/odd.csv")["table"]
    assert [column["name"] for column in table["columns"]] == ["name", "says", "count"]
    assert table["rows"][0]["cells"][1] == "<script>alert(1)</script>"
    assert got(script, f"{at}/odd.csv?as_text=true")["text"].startswith("name,says,count\n")
    arrays = got(script, f"{at}/arrays.npz")["arrays"]
    assert {each["name"] for each in arrays} >= {"embeddings", "labels"}
    assert got(script, f"{at}/embeddings.npy")["arrays"][0]["table"]["rows"]
    assert '"model": "LeNet"' in got(script, f"{at}/report.json")["text"]


def test_what_cannot_be_shown_says_what_to_do_with_it(run: TrainingRun, script: Script) -> None:
    put(run, {"model/model.pth": b"PK\x03\x04" + b"\0" * 64, "model/picture.bin": written.squares(3)})
    found = got(script, f"/runs/{run.pk}/previews/model/model.pth")
    assert found["text"] is None and "torch.load" in found["instead"]
    assert got(script, f"/runs/{run.pk}/previews/model/picture.bin")["image"] == "image/png"
    assert script.get(f"/runs/{run.pk}/previews/model/none.csv").status_code == 404
    assert script.get(f"/runs/{run.pk}/previews/../../etc/passwd").status_code == 404


def test_files_of_data_are_looked_into_too(studio: Seeded) -> None:
    script = api.of(studio.alice)
    table = got(script, f"/data/{studio.data.pk}/previews/train/labels.csv")["table"]
    assert [column["name"] for column in table["columns"]] == ["image", "digit", "mean"]
    assert script.get(f"/data/{studio.data.pk}/previews/none").status_code == 404
    assert script.get("/shared-data/previews/none").status_code == 404


def test_what_a_script_has_shown_is_listed_and_looked_at_by_step(run: TrainingRun, script: Script) -> None:
    listed = got(script, f"/runs/{run.pk}/media")["items"]
    assert [(each["kind"], each["steps"]) for each in listed][:2] == [("image", [1, 120, 240])] * 2
    of = f"/runs/{run.pk}/media/shown"
    (picture,) = got(script, f"{of}?kind=image&name=predictions/confusion&step=120")["pictures"]
    answer = script.get(f"/runs/{run.pk}/media/picture?file={picture['file']}&offset={picture['offset']}&size={picture['size']}")
    assert (answer.status_code, answer["Content-Type"], answer.content) == (200, "image/png", written.squares(10))
    assert "should be isolated" in got(script, f"{of}?kind=text&name=notes")["texts"][0]
    spread = got(script, f"{of}?kind=histogram&name=conv1/weights&step=1")["histogram"]
    assert sum(spread["counts"]) == 2000 and spread["low"] < spread["high"]
    assert script.get(f"{of}?kind=text&name=notes&step=7").status_code == 404
    assert script.get(f"{of}?kind=text&name=unheard-of").status_code == 404


@pytest.mark.parametrize(
    "tags",
    [
        (Tag("histogram", "h", (Entry(1, 0.0, "x", (), Histogram(float("-inf"), float("nan"), (1.0,))), Entry(3, 0.0, "x"))),),
        (Tag("text", "t", (Entry(-(1 << 80), 1e300, "../../etc/passwd", ((0, 99),)),)), Tag("text", "none", ())),
        (Tag("image", "i", (Entry(1 << 80, float("nan"), "tb", ((-1, 5), (0, 1 << 70))),)),),
        (Tag("text", "\ud800\0<i>", (Entry(1, 0.0, "\ud800\0", ((0, 5),)),)),),
    ],
)
def test_whatever_a_script_puts_into_the_list_is_answered(run: TrainingRun, script: Script, tags: tuple[Tag, ...]) -> None:
    put(run, {media.FILE_NAME: media.dump(tags)})
    for tag in got(script, f"/runs/{run.pk}/media")["items"]:
        answer = script.get(f"/runs/{run.pk}/media/shown?kind={tag['kind']}&name={tag['name']}")
        assert answer.status_code in (200, 404) and b"root:" not in answer.content


def test_versions_are_compared_by_code_and_attributes(alice: User, project: Project, script: Script) -> None:
    first = cast.definition(project, by=alice, files={"main.py": "lr = 1\n", "old.py": "x\n"}, command="main.py")
    assert got(script, f"/versions/{first.pk}/changes") == {"since": None, "attributes": [], "files": []}
    second = newer(first, alice, {"main.py": "lr = 2\n", "new.py": "y\n"})
    found = got(script, f"/versions/{second.pk}/changes")
    assert found["since"] == 1
    assert found["attributes"] == [{"name": "Execution command", "before": "main.py", "after": "main.py --fast"}]
    assert {each["path"]: each["what"] for each in found["files"]} == {"main.py": "changed", "new.py": "added", "old.py": "removed"}
    lines = {(each["kind"], each["text"].strip()) for each in found["files"][0]["lines"]}
    assert {("del", "lr = 1"), ("add", "lr = 2")} <= lines
    third = newer(second, alice, {"main.py": "lr = 1\n", "old.py": "x\n"})
    assert got(script, f"/versions/{third.pk}/changes?since=1")["files"] == []
    assert script.get(f"/versions/{third.pk}/changes?since=9").status_code == 404


def newer(version: DefinitionVersion, by: User, files: dict[str, str]) -> DefinitionVersion:
    upload = cast.zipped(files)
    return services.add_version(version.definition, by=by, upload=upload, file_name="code.zip", command="main.py --fast")


def test_what_slots_did_is_told_for_each_of_them(studio: Seeded) -> None:
    found = got(api.of(studio.alice), f"/runs/{studio.running.pk}/utilization")
    assert found["times"] == sorted(found["times"]) and found["slots"]
    for line in (found, *found["slots"]):
        assert len(line["busy"]) == len(line["memory_bytes"]) == len(found["times"])
    assert any(share is not None and 0 <= share <= 1 for share in found["busy"])


def test_what_a_change_would_do_is_told_and_not_done(studio: Seeded) -> None:
    script, run = api.of(studio.alice), studio.running
    stopped = script.post(f"/runs/{run.pk}/preview", {"stop": True}).json()
    assert stopped["sentences"]
    assert script.post(f"/runs/{run.pk}/preview", {"min_slots": 5, "max_slots": 2}).status_code == 400
    dora, slot = api.of(studio.dora), studio.node.slots.all()[0]
    drained = dora.post("/nodes/local/drain/preview", {"draining": True}).json()
    assert drained["sentences"]
    assert dora.post("/nodes/local/drain/preview", {"slot": slot.pk}).status_code == 200
    assert dora.post("/nodes/local/drain/preview", {"slot": 999_999}).status_code == 404
    run.refresh_from_db()
    studio.node.refresh_from_db()
    assert (run.is_live(), studio.node.draining) == (True, False)
