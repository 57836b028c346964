"""Packages that scripts import: one that is missing is named with what to do; torchvision is usable over a torch without CUDA."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import torch

from tests.engine.test_user_code import finish, script
from tests.engine.trainer_scripts import PACKAGES
from training_runtime.elastic.driver import advice

ROOT = Path(__file__).resolve().parents[2]


def test_a_missing_package_fails_the_run_with_its_name_and_what_to_do(start):
    run = start("import no_such_package.parts\n")
    assert run.wait() == 1
    (failed,) = run.events("error")
    assert failed.message.startswith("ModuleNotFoundError: No module named 'no_such_package'. The package no_such_package is not installed")
    assert "add a line no_such_package to requirements.txt in the upload" in failed.message
    assert "missing in the upload" in failed.message


def test_one_that_is_missing_only_where_the_data_is_loaded_is_named_too(start):
    run = finish(start, script(data="import no_such_package"), code=1)
    assert "The package no_such_package is not installed" in run.events("error")[0].message


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("tqdm", "The package tqdm is not installed where scripts run: add a line tqdm to requirements.txt in the upload"),
        ("PIL", "The package pillow is not installed"),
        ("cv2", "add a line opencv-python-headless to requirements.txt"),
        ("hydra", "add a line hydra-core to requirements.txt"),
        ("pkg_resources", "add a line setuptools<81 to requirements.txt"),
        ("jax.numpy", "add a line jax to requirements.txt"),
        ("torch.no_such_part", "The package torch is installed, in a version that has no torch.no_such_part."),
    ],
)
def test_the_advice_goes_by_the_package(name, says):
    assert says in advice.after(ModuleNotFoundError(f"No module named {name!r}", name=name))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "Using the `Trainer` with `PyTorch` requires `accelerate>=1.1.0`: Please run `pip install torch[all]` or "
            "`pip install 'no-such-package>=1.1.0'`",
            "add a line no-such-package to requirements.txt",
        ),
        ("Missing optional dependency 'lxml'. Use pip install -U --quiet no_such.package to get it.", "The package no_such.package is not"),
        ("numpy is too old: pip install numpy>=3", ""),
        ("pip install git+https://example.org/x", ""),
        ("pip install", ""),
    ],
)
@pytest.mark.parametrize("kind", [ImportError, RuntimeError])
def test_a_package_that_a_library_asks_for_in_words_is_named(kind, text, says):
    found = advice.after(kind(text))
    assert says in found if says else not found


def printed(start, code: Path, name: str, **options) -> str:
    """The last line that a script prints."""
    run = start(code, "--epochs", "3", script=name, elastic=False, max_slots=1, **options)
    run.members(0)
    assert run.wait() == 0, run.tail()
    logs = sorted((run.result_dir / "log").glob("worker-*/console.log")) if options else [run.log]
    return logs[0].read_text().splitlines()[-1]


@pytest.mark.parametrize("options", [{}, {"torchrun": "fixed"}], ids=["one process", "torchrun"])
@pytest.mark.parametrize("files", [("letters/__init__.py",), ()], ids=["with its __init__.py", "without"])
def test_a_script_that_is_part_of_a_package_runs_as_by_python_m(start, tmp_path, options, files):
    package = tmp_path / "code" / "letters"
    package.mkdir(parents=True)
    for file in files:
        (package.parent / file).touch()
    (package / "words.py").write_text("NAME = __name__\n")
    (package / "colorsys.py").write_text("raise AssertionError('beside the script, and not of Python')\n")
    code = "import sys, colorsys\nfrom . import words\nfrom .words import NAME\nfrom letters.words import NAME as OTHER\n"
    (package / "train.py").write_text(f"{code}print(NAME, words.__name__, OTHER, __package__, *sys.argv[1:])\n")
    said = printed(start, package.parent, "letters/train.py", **options)
    assert said == "letters.words letters.words letters.words letters --epochs 3"


def test_an_upload_that_is_a_package_itself_runs_its_script(start, tmp_path):
    code = tmp_path / "letters"
    code.mkdir()
    (code / "__init__.py").touch()
    (code / "words.py").write_text("NAME = 'words'\n")
    (code / "train.py").write_text("from .words import NAME\nprint(NAME)\n")
    assert printed(start, code, "train.py") == "words"


def test_a_script_that_imports_what_lies_beside_it_finds_it_as_before(start, tmp_path):
    package = tmp_path / "code" / "letters"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "words.py").write_text("NAME = __name__\n")
    (package / "train.py").write_text("import words\nprint(words.NAME, repr(__package__))\n")
    assert printed(start, package.parent, "letters/train.py") == "words ''"


def test_a_module_that_is_found_by_the_wrong_name_is_explained():
    error = ImportError("attempted relative import with no known parent package")
    assert "found by the name of its package alone" in advice.after(error)


def test_other_errors_get_no_advice():
    assert advice.after(ImportError("cannot import name 'x' from 'torch'", name="torch")) == ""
    assert advice.after(ValueError("no")) == ""


def test_what_the_data_folder_has_nothing_to_do_with_gets_no_such_advice(monkeypatch, tmp_path):
    monkeypatch.setenv("DATA_DIR", str(tmp_path))
    refused = PermissionError(errno.EACCES, "Permission denied", "/somewhere/else")
    assert advice.after(refused) == advice.after(FileNotFoundError(errno.ENOENT, "No such file", str(tmp_path / "train.pt"))) == ""


def unresolved() -> BaseException:
    with pytest.raises(urllib.error.URLError) as raised:
        urllib.request.urlopen("http://no-such-host.invalid/model.pt", timeout=10)
    return raised.value


def wrapped() -> BaseException:
    """As libraries do it: their own error, from one that was raised while another was handled."""
    with pytest.raises(RuntimeError) as raised:
        try:
            try:
                raise OSError(errno.ENETUNREACH, "Network is unreachable")
            except OSError:
                raise ValueError("the connection failed")  # noqa: B904
        except ValueError as error:
            raise RuntimeError("We could not reach the hub") from error
    return raised.value


def test_who_writes_outside_the_run_is_told_where_it_may(monkeypatch, tmp_path):
    monkeypatch.setenv("RESULT_DIR", str(tmp_path))
    assert "TMPDIR" in advice.after(PermissionError(errno.EACCES, "Permission denied", "/tmp/no-such-folder/model.pt"))
    assert advice.after(PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "model.pt"))) == ""


@pytest.mark.parametrize("error", [unresolved, wrapped])
def test_who_reaches_no_network_is_told_how_to_get_it(error, monkeypatch):
    monkeypatch.setenv("EDT_NETWORK", "none")
    assert "save a new version with the network The internet" in advice.after(error())
    for other in ("outward", "machine"):
        monkeypatch.setenv("EDT_NETWORK", other)
        assert advice.after(error()) == ""


def test_a_library_that_tries_one_mirror_after_another_keeps_of_the_reason_only_its_words(monkeypatch):
    monkeypatch.setenv("EDT_NETWORK", "none")
    error = RuntimeError(
        "Error downloading digits.gz:\nTried https://one/, got:\n<urlopen error [Errno -3] Temporary failure in name resolution>\n"
    )
    assert "save a new version with the network The internet" in advice.after(error)
    assert advice.after(RuntimeError("Error downloading digits.gz: it is damaged")) == ""


def test_a_file_that_is_not_in_the_upload_is_to_be_added_to_it_or_to_be_a_data_asset():
    says = advice.after(FileNotFoundError(errno.ENOENT, "No such file or directory", "data/linux/train.txt"))
    assert "what is not in the zip" in says
    assert "os.environ['DATA_DIR']" in says
    assert "$DATA_DIR" in says
    for other in ("/srv/train.txt", "", None):
        assert advice.after(FileNotFoundError(errno.ENOENT, "No such file or directory", other)) == ""


def test_a_file_beside_a_script_in_a_folder_is_to_be_named_from_the_top(tmp_path, monkeypatch):
    """The command runs at the top of the upload, as everywhere in WMLA."""
    (tmp_path / "lm" / "data").mkdir(parents=True)
    (tmp_path / "lm" / "data" / "train.txt").touch()
    monkeypatch.chdir(tmp_path)
    missing = FileNotFoundError(errno.ENOENT, "No such file or directory", "data/train.txt")
    told = {"lm/main.py": "lies in its folder lm: there the file is lm/data/train.txt", "main.py": "what is not in the zip"}
    for name, says in told.items():
        monkeypatch.setattr(sys, "argv", [name])
        assert says in advice.after(missing)


@pytest.mark.parametrize(
    "says",
    [
        "Torch not compiled with CUDA enabled",
        "No CUDA GPUs are available",
        "Cannot access accelerator device when none is available.",
        "ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
        "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False.",
        "module 'torch._C' has no attribute '_cuda_setDevice'",
    ],
)
def test_who_computes_on_a_gpu_where_there_is_none_is_told_what_to_say_instead(says, monkeypatch):
    assert re.search(r"\w'?\)?[.!] This run's slots have no GPU", says + advice.after(RuntimeError(says)))
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert advice.after(RuntimeError(says)) == ""


@pytest.mark.parametrize("both", ["cuda:0 and cpu!", "cpu and cuda:0! (when checking argument for argument mat1)"])
def test_what_was_made_before_the_training_is_on_the_processor_and_where_to_bring_it_is_said(both):
    says = f"Expected all tensors to be on the same device, but found at least two devices, {both}"
    assert "say .to(x.device)" in advice.after(RuntimeError(says))


def test_a_service_that_wants_a_key_is_given_it_as_a_secret_or_left_out():
    assert "Log in. Nobody can be asked for a key here" in f"Log in{advice.after(RuntimeError('api_key not configured (no-tty)'))}"
    assert "the secret WANDB_API_KEY under Variables" in advice.after(RuntimeError("No API key configured. Use `wandb login` to log in."))


def test_who_tries_a_private_network_is_told_who_opens_it(monkeypatch, tmp_path):
    monkeypatch.setenv("EDT_NETWORK", "outward")
    assert "EDT_RUN_NETWORK_ALLOW" in advice.after(urllib.error.URLError(PermissionError(errno.EACCES, "Permission denied")))
    assert advice.after(PermissionError(errno.EACCES, "Permission denied", str(tmp_path))) == ""


def python(code: str, **env: str) -> str:
    found = subprocess.run([sys.executable, "-c", code], env={**os.environ, **env}, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_an_interpreter_of_an_environment_begins_without_what_a_script_may_never_need():
    """Each does, down to the one of a data loader: what they import at their start is paid for by every process."""
    code = "import sys; from training_runtime.elastic.keras import finder; from training_runtime.fabric import torchvision_ops as ops\n"
    said = python(f"{code}finder.install(); ops.install(); print(*sys.modules)")
    assert not {"pathlib", "typing", "tempfile", "importlib.resources", "re"} & set(said.split())


def test_operators_that_the_import_asks_for_are_declared_before_it(tmp_path):
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision/_C.so").write_bytes(b"needs CUDA")
    (tmp_path / "torchvision/__init__.py").write_text("import torch\nprint(torch.ops.torchvision.nms, torch.ops.torchvision.qnms)\n")
    code = "import training_runtime.fabric.torchvision_ops as ops; ops.install(); ops.install(); import torchvision"
    assert python(code, PYTHONPATH=str(tmp_path)) == "torchvision.nms torchvision.qnms\n"


def test_torchvision_itself_works_for_data_sets_transforms_and_models():
    code = """
import training_runtime.fabric.torchvision_ops as ops; ops.install()
import torch
from PIL import Image
from torchvision import datasets, models, transforms
picture = transforms.Compose([transforms.RandomCrop(24), transforms.ToTensor(), transforms.Normalize(0.5, 0.5)])(Image.new("RGB", (32, 32)))
print(tuple(models.resnet18(num_classes=10)(picture[None].repeat(2, 1, 1, 1)).shape), len(datasets.FakeData(size=5)))
"""
    assert python(code) == "(2, 10) 5\n"


@pytest.mark.skipif(not (PACKAGES / "torchaudio").is_dir(), reason="torchaudio is not installed: make setup-test")
def test_torchaudio_works_over_a_torch_without_cuda_but_for_what_is_in_its_libraries():
    code = """
import torch, torchaudio
wave = torch.randn(1, 16000)
spectrogram = torchaudio.transforms.MelSpectrogram(16000, n_mels=40)(wave)
print(tuple(spectrogram.shape), tuple(torchaudio.functional.lowpass_biquad(wave, 16000, 3e3).shape))
try:
    torchaudio.functional.forced_align(torch.randn(1, 5, 4).log_softmax(-1), torch.tensor([[1, 2]]))
except RuntimeError as error:
    print("alignment extension" in str(error))
"""
    install = "import training_runtime.fabric.torchaudio_ops as ops; ops.install(); ops.install()"
    said = python(f"{install}\n{code}", PYTHONPATH=str(PACKAGES)).splitlines()
    assert said[0] == "(1, 40, 81) (1, 16000)"
    assert said[1:] == ([] if torch.version.cuda else ["True"])
    code = "import torch; torch.version.cuda = '13.0'\ntry:\n    import torchaudio\nexcept OSError:\n    print('raised')"
    broken = python(f"{install}\n{code}", PYTHONPATH=str(PACKAGES))
    assert broken == ("" if torch.version.cuda else "raised\n"), "with CUDA it is said what is missing"


def test_a_folder_that_the_first_start_has_made_is_said_with_what_to_do(start, tmp_path):
    """Only one of the run's own."""
    folders = {"own": "os.environ['RESULT_DIR'] + '/out'", "another": repr(str(tmp_path))}
    said = {}
    for name, folder in folders.items():
        run = start(f"import os\nfolder = {folder}\nos.makedirs(folder, exist_ok=True)\nos.mkdir(folder)\n", elastic=False, max_slots=1)
        run.members(0)
        assert run.wait() == 1
        (said[name],) = run.events("error")
    assert "makedirs(path, exist_ok=True)" in said["own"].message
    assert "exist_ok" not in said["another"].message
