"""What travels from a notebook: everything that train() was given, as it is; with a sentence where that cannot be."""

from __future__ import annotations

import functools
import json
import platform
import subprocess
import sys
import threading
import warnings
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from training_runtime.errors import UserError
from training_runtime.fabric.notebook import arrival, culprit, packing
from training_runtime.fabric.notebook.packing import Call

ROOT = Path(__file__).resolve().parents[2]


def made(**more: Any) -> dict[str, Any]:
    model = torch.nn.Linear(4, 2)
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.1), "driver_logger_callback": None, **more}


def back(folder: Path, given: dict[str, Any], kept: tuple[Any, ...] = (), most_bytes: int | None = None) -> dict[str, Any]:
    packing.write(Call(given, {}, kept=kept), folder, most_bytes=most_bytes)
    return arrival.read(folder)


def test_what_was_one_object_stays_one(tmp_path: Path) -> None:
    given = made()
    model, optimizer = given["model"], given["optimizer"]
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)
    optimizer.step()
    found = back(tmp_path, {**given, "loss_function": lambda out, y: model(out) - y}, kept=(scheduler,))
    there, its_optimizer, (its_scheduler,) = found["made"]["model"], found["made"]["optimizer"], found["kept"]
    assert its_optimizer.param_groups[0]["params"][0] is there.weight
    assert its_scheduler.optimizer is its_optimizer
    assert found["made"]["loss_function"].__closure__[0].cell_contents is there
    assert torch.equal(there.weight, model.weight)
    with warnings.catch_warnings(action="error"):  # torch's, of schedulers that step before their optimizer
        its_optimizer.step()
        its_scheduler.step()


def test_an_optimizer_brings_its_hooks_and_its_own_attributes(tmp_path: Path) -> None:
    class Own(torch.optim.SGD):
        rounds = 0

    given, calls = made(), []
    optimizer = Own(given["model"].parameters(), 0.1, momentum=0.9)
    optimizer.rounds = 7
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    found = back(tmp_path, {**given, "optimizer": optimizer, "calls": calls})["made"]
    found["model"](torch.ones(1, 4)).sum().backward()
    found["optimizer"].step()
    assert found["calls"] == ["before", "after"]
    assert (found["optimizer"].rounds, calls) == (7, [])


def test_tensors_that_share_memory_travel_once(tmp_path: Path) -> None:
    rows = torch.zeros(1 << 18)
    found = back(tmp_path, made(halves=[rows[: 1 << 17], rows[1 << 17 :]], generator=torch.Generator().manual_seed(3)))["made"]
    assert (tmp_path / packing.PAYLOAD).stat().st_size < rows.nbytes + 100_000
    assert torch.equal(torch.rand(3, generator=found["generator"]), torch.rand(3, generator=torch.Generator().manual_seed(3)))


IN_A_KERNEL = """
import sys
from pathlib import Path
import torch
from training_runtime.fabric.notebook import packing

class Rows:
    count = 3

def make():
    return Rows()

model = torch.nn.Linear(2, 2)
packing.write(packing.Call({"model": model, "datasets_function": lambda: make()}, {}), Path(sys.argv[1]))
"""
IN_A_RUN = """
import pickle, sys
from pathlib import Path
from training_runtime.fabric.notebook import arrival

rows = arrival.read(Path(sys.argv[1]))["made"]["datasets_function"]()
again = pickle.loads(pickle.dumps(rows))  # as the engine and the loaders do
print(type(again).__module__, again.count, sys.modules["__main__"].make is not None)
"""


def test_classes_of_the_notebook_are_those_of_the_runs_own_script(tmp_path: Path) -> None:
    for code in (IN_A_KERNEL, IN_A_RUN):
        done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert done.stdout == "__main__ 3 True\n"


class Connection:
    def __init__(self) -> None:
        self.lock = threading.Lock()


def outer(connection: Connection) -> Any:
    return lambda: connection


@pytest.mark.parametrize(
    ("things", "way"),
    [
        ({"datasets_function": outer(Connection())}, "datasets_function > connection > .lock cannot be sent"),
        ({"loss_function": functools.partial(print, out={"x": [1, threading.Lock()]})}, "loss_function > out > ['x'] > [1] cannot be sent"),
        ({"user_callback": [Connection()]}, "user_callback > [0] > .lock cannot be sent"),
        ({"fn_test": Connection().__init__}, "fn_test > __self__ > .lock cannot be sent"),
    ],
)
def test_what_cannot_be_pickled_is_named_by_the_way_to_it(tmp_path: Path, things: dict[str, Any], way: str) -> None:
    with pytest.raises(UserError) as raised:
        packing.write(Call(made(**things), {}), tmp_path)
    assert f"train: {way} to the process that trains: it is a _thread.lock (" in str(raised.value)
    assert "Open or make it inside the function that uses it" in str(raised.value)


def test_what_is_too_large_is_named_before_it_is_written(tmp_path: Path) -> None:
    rows = torch.zeros(3 << 20, dtype=torch.uint8)
    with pytest.raises(UserError) as raised:
        packing.write(Call(made(datasets_function=lambda: rows), {}), tmp_path, most_bytes=2 << 20)
    said = str(raised.value)
    assert said.startswith(
        "train: more than 2.0 MiB would have to travel to the studio; the largest part is datasets_function > rows with 3.0 MiB."
    )
    assert "os.environ['DATA_DIR']" in said
    assert (tmp_path / packing.PAYLOAD).stat().st_size < 1 << 20
    packing.write(Call(made(datasets_function=lambda: rows), {}), tmp_path, most_bytes=4 << 20)


def test_numpy_arrays_count_too(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    rows = numpy.zeros(3 << 20, dtype="uint8")
    with pytest.raises(UserError, match=r"datasets_function > rows with 3.0 MiB"):
        packing.write(Call(made(datasets_function=lambda: rows), {}), tmp_path, most_bytes=2 << 20)


def test_modules_of_ones_own_travel_as_files_and_installed_ones_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "source"
    (source / "parts").mkdir(parents=True)
    for name in ("own_helper_module.py", "parts/__init__.py", "parts/rows.py"):
        (source / name).write_text("COUNT = 3\n")
    code = "import own_helper_module, parts.rows, numpy, edt_client\nfrom training_runtime.fabric.notebook import packing\n"
    code += "print('\\n'.join(sorted(packing.own_modules())))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=source, capture_output=True, text=True, check=False, env={"PYTHONPATH": str(ROOT)}
    )
    assert done.stdout.split() == ["own_helper_module.py", "parts/__init__.py", "parts/rows.py"], done.stderr


def test_the_zip_holds_a_script_that_does_nothing_but_read_the_payload(tmp_path: Path) -> None:
    packing.write(Call(made(), {}), tmp_path)
    packing.bundle(tmp_path, tmp_path / "code.zip")
    with zipfile.ZipFile(tmp_path / "code.zip") as archive:
        assert {packing.SCRIPT, packing.ABOUT, packing.PAYLOAD} <= set(archive.namelist())
        assert "arrival.train(__file__)" in archive.read(packing.SCRIPT).decode()


def test_another_python_is_refused_before_anything_is_unpickled(tmp_path: Path) -> None:
    packing.write(Call(made(), {}), tmp_path)
    about = json.loads((tmp_path / packing.ABOUT).read_text())
    (tmp_path / packing.PAYLOAD).write_bytes(b"would not be read")
    (tmp_path / packing.ABOUT).write_text(json.dumps({**about, "python": "3.8.1"}))
    ours = ".".join(platform.python_version_tuple()[:2])
    with pytest.raises(UserError, match=f"runs Python 3.8 and this machine Python {ours}: .*Choose a kernel with Python {ours}"):
        arrival.read(tmp_path)
    (tmp_path / packing.ABOUT).write_text(json.dumps({**about, "version": 0}))
    with pytest.raises(UserError, match=r"of another version than this one"):
        arrival.read(tmp_path)


def test_without_cloudpickle_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"pip install cloudpickle"):
        packing.write(Call(made(), {}), tmp_path)


def test_sizes_are_said_as_people_say_them() -> None:
    assert [culprit.short(size) for size in (900, 2048, 3 << 20, 5 << 30)] == ["900 B", "2.0 KiB", "3.0 MiB", "5.0 GiB"]
