"""Execution commands: read without a shell, PyTorch's launcher taken off, and refused with what to do where they cannot run."""

from __future__ import annotations

import pytest

from experiments import services
from experiments.cluster import desired
from experiments.errors import DomainError
from experiments.files import bundles
from experiments.files.bundles import BundleRefused
from experiments.models import ClusterRules, Project, User
from experiments.models.definitions import BY_CODE
from tests import cast
from tests.domain.test_bundles import keep

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("home")]


@pytest.mark.parametrize(
    ("command", "argv"),
    [
        ("main.py", ("main.py",)),
        ("python main.py --epochs 5", ("main.py", "--epochs", "5")),
        ("main.py --epochs 5", ("main.py", "--epochs", "5")),
        ("python3 ./main.py", ("main.py",)),
        ("/usr/bin/python3.11 -u main.py", ("main.py",)),
        ("  main.py --name 'two words' \"a'b\" ", ("main.py", "--name", "two words", "a'b")),
        ("lib/train.py $HOME `id`", ("lib/train.py", "$HOME", "`id`")),
        ("main.py a;b", ("main.py", "a;b")),
        ("python -m lib.train --epochs 5", ("lib/train.py", "--epochs", "5")),
        ("python3 -u -m train -m x", ("train.py", "-m", "x")),
    ],
)
def test_a_command_is_read_without_a_shell(command: str, argv: tuple[str, ...]) -> None:
    assert bundles.parse_command(command) == argv


@pytest.mark.parametrize(
    ("command", "argv", "restarts"),
    [
        ("torchrun main.py --epochs 5", ("main.py", "--epochs", "5"), None),
        ("torchrun --nnodes=1:4 --nproc_per_node 4 --max-restarts=2 main.py --max-restarts 9", ("main.py", "--max-restarts", "9"), 2),
        ("torchrun --nproc-per-node=2 -m lib.train --epochs 5", ("lib/train.py", "--epochs", "5"), None),
        ("python -m torch.distributed.run --max-restarts 1 --module lib.train", ("lib/train.py",), 1),
        ("/opt/bin/torchrun --standalone lib/train.py", ("lib/train.py",), None),
        ("python -m torch.distributed.run --max_restarts 0 main.py", ("main.py",), 0),
        ("python3 -u -m torch.distributed.launch --use_env main.py -m x", ("main.py", "-m", "x"), None),
        (
            "python -m torchelastic.distributed.launch --nnodes=1:3 --rdzv_id=7 --rdzv_backend=etcd --rdzv_endpoint=etcd:2379 main.py data",
            ("main.py", "data"),
            None,
        ),
    ],
)
def test_pytorchs_launcher_is_taken_off_with_its_options(command: str, argv: tuple[str, ...], restarts: int | None) -> None:
    assert bundles.parse_command(command) == argv
    found = bundles.launcher(command)
    assert found is not None
    assert found.max_restarts == restarts
    bundles.check_type(command, "torchrun")
    with pytest.raises(BundleRefused, match='choose "torchrun elastic" or "torchrun" as the distributed training type'):
        bundles.check_type(command, "single")


def test_a_command_without_pytorchs_launcher_is_any_runs() -> None:
    assert bundles.launcher("main.py torchrun") is None
    bundles.check_type("python main.py", "elastic")


@pytest.mark.parametrize("command", ["yolo detect train data=digits.yaml", "nnUNetv2_train 1 2d 0", "accelerate launch main.py --lr 1"])
def test_a_program_of_a_package_is_one_process(command: str) -> None:
    assert bundles.parse_command(command) == tuple(command.split())
    assert bundles.program(command) == command.split()[0]
    assert bundles.entry_among(("main.py",), command) == tuple(command.split())
    bundles.check_type(command, "single")
    for distributed in ("elastic", "torchrun", "torchrun_elastic"):
        with pytest.raises(BundleRefused, match=f'{command.split()[0]} is no Python file .* choose "Single process"'):
            bundles.check_type(command, distributed)


def test_a_script_without_its_suffix_is_no_program() -> None:
    with pytest.raises(BundleRefused, match=r"write main\.py"):
        bundles.entry_among(("main.py",), "main --epochs 5")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("", "names no script"),
        ("torchrun", "names no script"),
        ("torchrun --nproc-per-node", "--nproc-per-node of torchrun has no value"),
        ("torchrun --max-restarts many main.py", "--max-restarts many is no whole number from 0 to 100"),
        ("torchrun --max-restarts=101 main.py", "no whole number"),
        ("torchrun -m", "names no script"),
        ("torchrun --no-python echo", "only Python scripts are run"),
        ("torchrun --gpus 4 main.py", "torchrun has no option --gpus"),
        ("torchrun ../main.py", "not inside the zip"),
        ("python -m pkg/train.py", "is no name of a module: write it as python -m package.train"),
        ("python", "names no script"),
        ("main.py 'oops", "close the quotes"),
        ("python -m", "names no script"),
        ("python -m pip install timm", "python -m pip trains nothing: packages are named in requirements.txt"),
        ("python -O main.py", "Options of Python itself such as -O"),
        ("main.sh", "not a Python file"),
        ("bash run.sh", "bash is not a Python file"),
        ("python yolo train", "yolo is not a Python file"),
        ("yolo train > log", "not run by a shell"),
        ("A=1 main.py", "not a Python file"),
        ("main.py && rm -rf /", "not run by a shell"),
        ("main.py > log", "not run by a shell"),
        ("/etc/evil.py", "not inside the zip"),
        ("../evil.py", "not inside the zip"),
        ("a/../../evil.py", "not inside the zip"),
        ("main.py \0", "NUL"),
    ],
)
def test_a_command_that_cannot_run_is_refused_with_what_to_do(command: str, message: str) -> None:
    with pytest.raises(BundleRefused, match=message):
        bundles.parse_command(command)


@pytest.mark.parametrize(
    ("command", "entry"),
    [
        ("python -m pkg", "pkg/__main__.py"),
        ("torchrun -m pkg", "pkg/__main__.py"),
        ("python -m pkg.train", "pkg/train.py"),
        ("python -m main", "main.py"),
    ],
)
def test_a_module_is_one_of_the_zips_files(command: str, entry: str) -> None:
    files = {"pkg/__init__.py": "", "pkg/__main__.py": "", "pkg/train.py": ""}
    assert bundles.entry(keep(cast.zipped({**files, "main.py": ""})), f"{command} a b") == (entry, "a", "b")
    if "main" not in command:  # the only folder at the top is taken off
        assert bundles.entry(keep(cast.zipped(files)), command) == (entry.removeprefix("pkg/"),)


def test_a_package_is_run_where_it_is_named_as_one() -> None:
    bundle = keep(cast.zipped({"train/__main__.py": "", "main.py": ""}))
    with pytest.raises(BundleRefused, match=r"train\.py is not in the zip"):
        bundles.entry(bundle, "python train.py -m train")


@pytest.mark.parametrize(
    "command", ["python -m open_clip_train.main --epochs 3", "torchrun --nproc-per-node 2 -m open_clip_train.main --epochs 3"]
)
def test_a_module_that_the_code_has_no_part_of_is_one_of_a_package(command: str) -> None:
    assert bundles.entry_among(["main.py"], command) == ("open_clip_train.main", "--epochs", "3")
    assert bundles.module(command) == "open_clip_train.main"
    assert not bundles.needs_script(command)


@pytest.mark.parametrize(
    "command", ["main.py -m letters", "python main.py -m letters", "letters -m main", "", "torchrun main.py -m letters"]
)
def test_an_option_of_a_script_names_no_module(command: str) -> None:
    assert bundles.module(command) == ""


def test_a_module_that_is_missing_in_a_package_of_the_code_is_refused() -> None:
    for files, root in ((["letters/train.py"], ""), (["train.py"], "letters")):
        with pytest.raises(
            BundleRefused, match=r"letters/trian\.py is not in the zip: name one of its Python files \((letters/)?train\.py\)"
        ):
            bundles.entry_among(files, "python -m letters.trian", root=root)


def test_a_script_that_is_not_there_is_refused_with_those_that_are() -> None:
    bundle = keep(cast.zipped({"main.py": "", "lib/net.py": ""}))
    with pytest.raises(BundleRefused, match=r"train\.py is not in the zip: name one of its Python files \(main\.py, lib/net\.py\)"):
        bundles.entry(bundle, "python train.py")


@pytest.mark.django_db
def test_code_without_a_script_is_kept_for_a_program_of_a_package_alone(project: Project, bob: User) -> None:
    settings = {"data.yaml": "names: [0, 1]", "requirements.txt": "ultralytics\n"}
    made = cast.definition(project, by=bob, files=settings, command="yolo train data=data.yaml", distributed=BY_CODE, max_slots=1)
    assert (made.distributed, made.requirements.split()[0]) == ("single", "ultralytics")
    for command in ("", "train.py"):
        with pytest.raises(DomainError, match="no Python file"):
            cast.definition(project, by=bob, name="other", files=settings, command=command)
    with pytest.raises(DomainError, match='choose "Single process"'):
        cast.definition(project, by=bob, name="other", files=settings, command="yolo train", distributed="elastic")
    (run,) = services.run_experiment(cast.experiment(project, by=bob, versions=[made]), by=bob)
    assert run.command == "yolo train data=data.yaml"


@pytest.mark.django_db
def test_a_run_is_told_the_module_that_its_command_names(project: Project, bob: User) -> None:
    node, rules = cast.node(), ClusterRules.current()
    code = {"letters/train.py": "", "main.py": "", "requirements.txt": "json-tool\n"}
    found = []
    for command in ("python -m letters.train --lr 0.1", "letters/train.py", "python -m json.tool data.json"):
        made = cast.definition(project, by=bob, name=command, files=code, command=command, distributed=BY_CODE, max_slots=1)
        (run,) = services.run_experiment(cast.experiment(project, by=bob, name=command, versions=[made]), by=bob)
        spec = desired._spec(run, on=node, rules=rules, secrets={})
        found.append((made.distributed, spec.argv, spec.module))
    assert found == [
        ("single", ("letters/train.py", "--lr", "0.1"), "letters.train"),
        ("single", ("letters/train.py",), ""),
        ("single", ("json.tool", "data.json"), "json.tool"),
    ]


@pytest.mark.django_db
def test_a_module_of_a_package_is_of_a_type_that_runs_it(project: Project, bob: User) -> None:
    code = {"main.py": ""}
    for command, distributed in (("python -m axolotl.cli.train a.yml", "single"), ("torchrun -m axolotl.cli.train a.yml", "torchrun")):
        assert cast.definition(project, by=bob, name=command, files=code, command=command, distributed=BY_CODE).distributed == distributed
    with pytest.raises(DomainError, match=r'axolotl\.cli\.train is no Python file .* choose "Single process"'):
        cast.definition(project, by=bob, files=code, command="python -m axolotl.cli.train a.yml", distributed="elastic")
    made = cast.definition(project, by=bob, files=code, command="main.py", distributed="elastic")
    with pytest.raises(DomainError, match=r'axolotl\.cli\.train is no Python file .* choose "Single process"'):
        services.create_experiment(project, by=bob, name="a", versions=[made], global_command="python -m axolotl.cli.train a.yml")
