"""Code that is no Python is taken, and said to be none at once."""

from __future__ import annotations

import pytest
from django.urls import reverse

from experiments.models import DefinitionVersion, Project, User
from tests.web.conftest import As, code, definition_form

BROKEN = "import torch\n\nx = (1,\n"


@pytest.mark.parametrize(
    ("files", "command", "said"),
    [
        ({"main.py": BROKEN}, "main.py", "main.py is no Python: line 3: "),
        ({"main.py": BROKEN}, "", "main.py is no Python: line 3: "),
        ({"main.py": "import net\n", "net.py": BROKEN}, "main.py", "net.py is no Python: line 3: "),
        ({"main.py": "x = 1\n", "old/tool.py": "print 1\n"}, "main.py", ""),
        ({"main.py": "x = 1\n"}, "main.py", ""),
    ],
)
def test_a_script_that_is_no_python_is_saved_and_said_with_its_line(
    files: dict[str, str | bytes], command: str, said: str, project: Project, bob: User, as_: As
) -> None:
    answer = as_(bob).post(reverse("new_definition", args=[project.pk]), definition_form(command=command, upload=code(files)))
    page = as_(bob).get(answer.url).content.decode()
    row = as_(bob).get(reverse("version_row", args=[DefinitionVersion.objects.get().pk])).content.decode()
    for html in (page, row):
        assert ("is no Python" in html) == bool(said) and said in html
