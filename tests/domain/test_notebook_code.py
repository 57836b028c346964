"""Model code that is a notebook: taken as it is, offered for the command, and read as the script that its run executes."""

from __future__ import annotations

import json

import pytest
from django.urls import reverse

from experiments import services
from experiments.definitions import code_facts
from experiments.files import bundles
from experiments.models import Project, User
from experiments.selectors import code as source
from tests import cast
from tests.domain.test_codework import as_person
from tests.domain.test_tars import keep
from tests.runtime.test_notebooks import code, notebook

ELASTIC = "from fabric_model import FabricModel\nm = FabricModel(model, data, loss, opt)\nm.train(epochs, 8, 2)"
TRAIN = notebook("%matplotlib inline\nimport torch", code("lr = 0.1  # the rate\nepochs = 2", "parameters"), ELASTIC)
PRINTED = json.dumps(json.loads(TRAIN) | {"metadata": {"printed": "a picture"}})
CHECKPOINT = ".ipynb_checkpoints/train-checkpoint.ipynb"


@pytest.mark.django_db
def test_a_single_notebook_is_code_of_one_file(home: object) -> None:
    bundle = keep(TRAIN.encode(), "train.ipynb")
    assert (bundle.root, bundle.scripts) == ("", ["train.ipynb"])
    assert bundles.entry(bundle, "python train.ipynb --epochs 1") == ("train.ipynb", "--epochs", "1")


def test_its_parameters_are_arguments_and_its_code_says_the_type(project: Project, bob: User, said: object) -> None:
    version = cast.definition(project, by=bob, files={"train.ipynb": TRAIN, "net.py": "", CHECKPOINT: TRAIN}, command="train.ipynb")
    assert version.bundle.scripts == ["net.py", "train.ipynb"], "what Jupyter has kept for itself is none"
    (script,) = source.scripts(version.bundle)
    assert (script.path, [(each.name, each.default, each.help) for each in script.arguments]) == (
        "train.ipynb",
        [("--lr", "0.1", "the rate"), ("--epochs", "2", "")],
    )
    assert code_facts.wanted_type(version.bundle, "train.ipynb") == "elastic"


def test_one_that_cannot_be_read_is_a_script_of_which_nothing_is_known(project: Project, bob: User, said: object) -> None:
    version = cast.definition(project, by=bob, files={"train.ipynb": "{"}, command="train.ipynb")
    assert [(script.path, script.arguments) for script in source.scripts(version.bundle)] == [("train.ipynb", ())]
    assert "{" in str(source.coloured(version.bundle, "train.ipynb"))


def test_pages_show_its_code_and_what_has_changed_in_it(project: Project, bob: User, said: object) -> None:
    def saved(text: str) -> str:
        upload = cast.zipped({"train.ipynb": text, "__init__.py": ""})
        version = services.add_version(first.definition, by=bob, upload=upload, file_name="code.zip", command="train.ipynb")
        return as_person(bob).get(reverse("changes", args=[version.pk])).content.decode()

    first = cast.definition(project, by=bob, files={"train.ipynb": TRAIN}, command="train.ipynb")
    shown = as_person(bob).get(reverse("code", args=[first.pk])).content.decode()
    assert "# %% [2]" in shown
    assert "&quot;cells&quot;" not in shown
    changed = saved(TRAIN.replace("lr = 0.1", "lr = 0.3"))
    assert "lr = 0.3  # the rate" in changed
    assert "Its code is the same" not in changed, "also of the empty file that was added"
    assert "Its code is the same" in saved(PRINTED.replace("lr = 0.1", "lr = 0.3"))


def test_what_it_installs_is_built_beside_what_a_file_names(project: Project, bob: User, said: object) -> None:
    installs = notebook("!pip install -q einops>=0.6 timm torch==1.13")
    alone = cast.definition(project, by=bob, files={"code/train.ipynb": installs}, command="train.ipynb")
    assert alone.requirements == "einops>=0.6  # train.ipynb:0\ntimm  # train.ipynb:0\n"
    files = {"train.ipynb": installs, "requirements.txt": "timm==1.0\n", "main.py": ""}
    both = cast.definition(project, by=bob, name="both", files=files, command="train.ipynb")
    assert both.requirements == "timm==1.0  # requirements.txt:1\neinops>=0.6  # train.ipynb:0\n"
    assert (
        cast.definition(project, by=bob, name="script", files=files, command="main.py").requirements == "timm==1.0  # requirements.txt:1\n"
    )
    unnamed = cast.definition(project, by=bob, name="unnamed", files={"train.ipynb": installs}, command="")
    assert unnamed.requirements == alone.requirements, "there is but one script to run"
