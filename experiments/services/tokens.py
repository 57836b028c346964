"""Verbs on API tokens: make one, which is shown once, and end it. And the end of those that IBM's routes sign."""

from __future__ import annotations

import datetime as dt

from experiments.accounts import api_tokens
from experiments.live import notify
from experiments.models import ApiToken, EndedToken, Project, Scope, TrainingRun, User
from experiments.services import checks

MOST_TOKENS = 100  # of a person
MOST_DAYS = 3650


def create_token(
    *, by: User, name: str, scope: str, project: Project | None = None, run: TrainingRun | None = None, days: int | None, now: dt.datetime
) -> tuple[ApiToken, str]:
    """The token as it is kept, and the token itself, which nobody can look up again. `days`: how long it is good; None: until it is ended.

    `run`: it ends with this run, and knows its project alone. Fields: name, scope, expires_in_days, run.
    """
    clean = checks.name(name)
    checks.choice(scope, Scope, field="scope")
    if days is not None:
        checks.whole(days, field="expires_in_days", least=1, most=MOST_DAYS)
    if run is not None:
        if not run.is_live():
            checks.refuse("run", "The run has ended, and its token would have with it.")
        project = run.experiment.project
    ApiToken.objects.filter(person=by, expires_at__lte=now).delete()
    if ApiToken.objects.filter(person=by).count() >= MOST_TOKENS:
        checks.refuse("name", f"You have {MOST_TOKENS} tokens already: end one first.")
    secret = api_tokens.new()
    token = ApiToken.objects.create(
        person=by,
        name=clean,
        digest=api_tokens.digest(secret),
        hint=secret[: api_tokens.HINT_LENGTH],
        scope=scope,
        project=project,
        run=run,
        created_at=now,
        expires_at=now + dt.timedelta(days=days) if days is not None else None,
    )
    checks.audit(by, "makes the API token %s (%s, %s)", token.pk, token.name, token.scope)
    return token, secret


def end_token(token: ApiToken, *, by: User) -> None:
    """It is good for nothing from now on; what was opened with it closes."""
    checks.audit(by, "ends the API token %s (%s)", token.pk, token.name)
    person = token.person_id
    token.delete()
    notify.access_changed(person)


def end_tokens(person: User, *, by: User) -> None:
    """All that the person has."""
    checks.audit(by, "ends all API tokens of %s", person.username)
    ApiToken.objects.filter(person=person).delete()
    notify.access_changed(person.pk)


def remember_ended(key: str, *, until: dt.datetime, now: dt.datetime) -> None:
    """A signed token of WMLA's interface is good for nothing from now on. It would be over at `until`: then it need not be remembered."""
    EndedToken.objects.filter(until__lt=now).delete()
    EndedToken.objects.get_or_create(key=key, defaults={"until": until})
