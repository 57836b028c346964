"""What a run computed with: its arguments with their defaults, its code, packages and seed."""

from __future__ import annotations

from django.http import HttpRequest
from ninja import Router, Schema

from experiments import access
from experiments.api.auth import person
from experiments.selectors import environments
from experiments.selectors.effective import effective, facts_of

router = Router(tags=["runs"])


class EffectiveArgument(Schema):
    """`given`: on the command line, or else a default. `parsed`: as the script's own parser made it, or else as its command and its text
    say."""

    name: str
    value: str
    given: bool
    parsed: bool


class Setup(Schema):
    """`packages`: that the script has imported, with their versions, where the run has noted it; `environment`: the number of what was
    built for it, if anything. `code_sha256`: of its zip; `git_commit`: "" where the code was uploaded. `seed`: null where it is not
    known."""

    arguments: list[EffectiveArgument]
    variables: dict[str, str]
    seed: int | None
    python: str
    packages: dict[str, str]
    requirements: str
    environment: int | None
    code_sha256: str
    git_commit: str


@router.get("/runs/{int:run}/setup", response=Setup)
def setup(request: HttpRequest, run: int) -> Setup:
    """What it computed with, as far as is known."""
    found = access.run(person(request), run)
    facts = facts_of([found]).get(found.pk)
    built = environments.of_run(found) if found.version.requirements else None
    return Setup(
        arguments=[
            EffectiveArgument(name=each.name, value=each.value, given=each.given, parsed=each.parsed) for each in effective(found, facts)
        ],
        variables=found.environment,
        seed=facts.seed if facts is not None else None,
        python=facts.python if facts is not None else "",
        packages=facts.packages if facts is not None else {},
        requirements=found.version.requirements,
        environment=built.pk if built is not None else None,
        code_sha256=found.version.bundle.sha256,
        git_commit=found.version.git_commit,
    )
