"""The type of training of code for which nobody chooses one: on the page, and by the API."""

from __future__ import annotations

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse

from experiments.models import DefinitionVersion, Project, User
from tests import cast
from tests.web import api
from tests.web.conftest import As, definition_form


@pytest.mark.parametrize(
    ("source", "command", "kind", "slots"),
    [
        ("import torch\nfor x, y in data:\n    loss(model(x), y).backward()\n", "main.py", "single", 1),
        ("from fabric_model import FabricModel\nFabricModel(model, data, loss, optimizer).train(1, 8)\n", "main.py", "elastic", 4),
        ("import torch.distributed as dist\ndist.init_process_group('gloo')\n", "", "torchrun", 4),
        ("print('hello')\n", "torchrun --max-restarts 1 main.py", "torchrun", 4),
    ],
)
def test_where_nobody_chooses_a_type_it_is_the_one_that_the_code_asks_for(
    source: str, command: str, kind: str, slots: int, project: Project, bob: User, as_: As
) -> None:
    form = as_(bob).get(reverse("new_definition", args=[project.pk])).content.decode()
    assert (
        '<option value="by_code">As the code says</option>' in form.split('name="distributed"', 1)[1].split("</option>", 1)[0] + "</option>"
    )
    upload = SimpleUploadedFile("l.zip", cast.zipped({"main.py": source}).getvalue())
    as_(bob).post(
        reverse("new_definition", args=[project.pk]), definition_form(distributed="by_code", max_slots="", upload=upload, command=command)
    )
    version = DefinitionVersion.objects.get()
    assert (version.distributed, version.max_slots) == (kind, slots)
    again = as_(bob).get(reverse("new_version", args=[version.definition.pk])).content.decode()
    assert f'<option value="{kind}" selected>' in again, "of the next version it is the one before's, unless somebody chooses another"


def test_an_api_call_that_names_no_type_makes_an_elastic_version_as_ever(project: Project, bob: User) -> None:
    loop = cast.zipped({"main.py": "import torch\nloss.backward()\n"}).getvalue()
    for said, made in (({}, "elastic"), ({"distributed": "by_code"}, "single"), ({"distributed": "torchrun"}, "torchrun")):
        file = SimpleUploadedFile("l.zip", loop)
        answer = api.of(bob).upload(f"/projects/{project.pk}/definitions", {"name": made, "command": "main.py", "file": file, **said})
        version = answer.json()["newest"]
        assert version["distributed"] == made
        assert api.of(bob).get(f"/versions/{version['id']}/arguments").json()["distributed"] == "single", "what it asks for all the same"
