"""What is refused is an error of the domain; Django's own stays with what Django itself calls and shows."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.architecture.source import Module, modules

DJANGOS_OWN = {
    "experiments.accounts.validators": "a validator of new passwords, which Django calls",
    "experiments.django_validation": "the one place that makes an error of the domain of it",
    "experiments.forms.common": "the clean_... of forms",
    "experiments.forms.searches": "the clean_... of a form",
    "experiments.forms.edits": "what a field says of a value that is compared",
    "experiments.forms.registry": "the clean of a form's field",
    "experiments.views.accounts": "the form of the log-in page, which is Django's",
}


def uses(module: Module) -> Iterator[str]:
    """Where it names Django's ValidationError, however it came by it."""
    for node in ast.walk(module.tree):
        imported = isinstance(node, ast.ImportFrom) and (node.module or "").startswith("django") and node.names
        if imported and any(alias.name == "ValidationError" for alias in imported):
            yield module.where(node)
        if isinstance(node, ast.Attribute) and node.attr == "ValidationError":
            yield module.where(node)


def test_no_service_raises_or_catches_what_djangos_forms_do() -> None:
    found = {module.name: list(uses(module)) for module in modules("experiments")}
    assert {name: places for name, places in found.items() if places and name not in DJANGOS_OWN} == {}
    assert {name for name, places in found.items() if places} == set(DJANGOS_OWN), "what no longer names it leaves the list"


def test_the_error_of_the_domain_knows_neither_django_nor_http() -> None:
    (error,) = (module for module in modules("experiments") if module.name == "experiments.errors")
    named = {ast.unparse(node) for node in ast.walk(error.tree) if isinstance(node, ast.Import | ast.ImportFrom)}
    assert not [line for line in named if not line.startswith(("from __future__", "from collections.abc"))]
