"""What administrators do to environments that they offer by name, and how a training definition chooses one."""

from __future__ import annotations

import datetime as dt
import hashlib
import re
import uuid

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone

from experiments.cluster import environments
from experiments.definitions import required_packages
from experiments.errors import DomainError
from experiments.live import notify
from experiments.models import ClusterChange, DefinitionVersion, NamedEnvironment, NamedVersion, User
from experiments.models.definitions import NAMED
from experiments.services import checks
from training_runtime.environments import requirements

NAME_LIMIT = 60
TEXT_LIMIT = requirements.MOST_BYTES
SHOWN_USERS = 3
Packages = DefinitionVersion.Packages
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+-]*")


def create_named_environment(
    *, by: User, name: str, description: str = "", text: str, idempotency_key: uuid.UUID | None = None, now: dt.datetime | None = None
) -> NamedVersion:
    """An environment with its version 1. Fields: name, description, text."""
    if (before := _sent_before(by, idempotency_key)) is not None:
        return before
    at = now or timezone.now()
    facts = _facts(name, description, text, but=None)
    try:
        with transaction.atomic():
            made = NamedEnvironment.objects.create(name=facts[0], description=facts[1], created_by=by, created_at=at)
            version = _store(made, by, facts[2], number=1, idempotency_key=idempotency_key, now=at)
            _record_change(by, f"offers the environment {made.name}", now=at)
    except IntegrityError:  # the same form, or the same name, at the same moment: the other was faster
        if (before := _sent_before(by, idempotency_key)) is not None:
            return before
        if NamedEnvironment.objects.filter(name__iexact=facts[0]).exists():
            checks.refuse("name", _name_taken(facts[0]))
        raise
    return version


def change_named_environment(
    environment: NamedEnvironment, *, by: User, name: str, description: str = "", text: str, now: dt.datetime | None = None
) -> NamedVersion:
    """Its newest version then: another one where the text is another. Fields as in `create_named_environment`."""
    at = now or timezone.now()
    clean, about, typed = _facts(name, description, text, but=environment)
    try:
        with transaction.atomic():
            _lock(environment)
            environment.name, environment.description = clean, about
            environment.save(update_fields=["name", "description"])
            version = environment.newest()
            if version.text != typed:
                version = _store(environment, by, typed, number=version.number + 1, idempotency_key=None, now=at)
                _record_change(by, f"changes the environment {clean}: version {version.number}", now=at)
            else:
                checks.audit(by, "updates the environment %s (%s)", environment.pk, clean)
                notify.changed("cluster", "environments")
    except IntegrityError:
        if NamedEnvironment.objects.filter(name__iexact=clean).exclude(pk=environment.pk).exists():
            checks.refuse("name", _name_taken(clean))
        raise
    return version


def renew_named_environment(
    environment: NamedEnvironment, *, by: User, idempotency_key: uuid.UUID | None = None, now: dt.datetime | None = None
) -> NamedVersion:
    """The next version with the same text, resolved again: releases that have come since are taken. Versions before keep their locks."""
    if (before := _sent_before(by, idempotency_key)) is not None:
        return before
    at = now or timezone.now()
    try:
        with transaction.atomic():
            _lock(environment)
            newest = environment.newest()
            try:
                version = _store(environment, by, newest.text, number=newest.number + 1, idempotency_key=idempotency_key, now=at)
            except requirements.Refused as refused:  # what may be named has been narrowed since
                raise DomainError(f"{refused} Edit it first.") from None
            _record_change(by, f"renews the environment {environment.name}: version {version.number}", now=at)
    except IntegrityError:
        if (before := _sent_before(by, idempotency_key)) is not None:
            return before
        raise
    return version


def retire_named_environment(environment: NamedEnvironment, *, by: User, retired: bool, now: dt.datetime | None = None) -> None:
    """Take it out of what definitions can choose, or put it back. Whoever uses it goes on."""
    at = now or timezone.now()
    with transaction.atomic():
        changed = NamedEnvironment.objects.filter(pk=environment.pk, retired_at__isnull=retired).update(retired_at=at if retired else None)
        if changed:
            _record_change(by, f"{'retires' if retired else 'offers again'} the environment {environment.name}", now=at)
    environment.refresh_from_db()


def build_named_environment(environment: NamedEnvironment, *, by: User, now: dt.datetime | None = None) -> int:
    """Have its newest version built on every machine, before a run needs it; on how many it was not there."""
    asked = environments.build_now(environment.newest(), now=now or timezone.now())
    checks.audit(by, "has the environment %s (%s) built", environment.pk, environment.name)
    notify.changed("cluster", "environments")
    return asked


def delete_named_environment(environment: NamedEnvironment, *, by: User, now: dt.datetime | None = None) -> None:
    """Refused while a version of a training definition has one of its versions."""
    with transaction.atomic():
        _lock(environment)
        if who := _users(environment):
            raise DomainError(f"{who}: retire it instead, then no other can choose it and who has it goes on.")
        _record_change(by, f"deletes the environment {environment.name}", now=now or timezone.now())
        environment.delete()


def chosen(packages: str, *, before: DefinitionVersion | None) -> tuple[str, NamedVersion | None]:
    """What a definition's next version has: the choice, and the newest version of the environment where it names one ("named:12").
    `before`: the version before, which may go on with a retired one. Field: packages."""
    if not packages.startswith(NAMED):
        if packages not in (Packages.OWN, Packages.STUDIO):
            checks.refuse("packages", f"Choose {Packages.OWN.label}, {Packages.STUDIO.label} or an environment that is offered.")
        return packages, None
    number = packages.removeprefix(NAMED)
    has = before.named.environment_id if before is not None and before.named is not None else None
    offered = NamedEnvironment.objects.filter(Q(retired_at=None) | Q(pk=has))
    found = offered.filter(pk=int(number)).first() if number.isascii() and number.isdigit() and len(number) < 18 else None
    if found is None:
        checks.refuse("packages", "This environment is not offered any more: choose another one.")
    return Packages.NAMED, found.newest()


def hold(named: NamedVersion) -> None:
    """In a transaction that makes something use it: it is not deleted at this moment."""
    if not NamedEnvironment.objects.select_for_update().filter(pk=named.environment_id).exists():
        checks.refuse("packages", "This environment has just been deleted: choose another one.")


def _facts(name: str, description: str, text: str, *, but: NamedEnvironment | None) -> tuple[str, str, str]:
    errors: list[DomainError] = []
    clean = checks.each(errors, lambda: _name(name, but=but))
    about = checks.each(errors, lambda: checks.text(description))
    typed = checks.each(errors, lambda: _text(text, clean or "requirements"))
    checks.collected(errors)
    assert clean is not None
    assert about is not None
    assert typed is not None
    return clean, about, typed


def _name(value: str, *, but: NamedEnvironment | None) -> str:
    clean = checks.name(value, limit=NAME_LIMIT)
    if not _NAME.fullmatch(clean):
        checks.refuse("name", "Use letters, digits, blanks and . _ + - in the name, and begin with a letter or digit.")
    if NamedEnvironment.objects.filter(name__iexact=clean).exclude(pk__in=[but.pk] if but else []).exists():
        checks.refuse("name", _name_taken(clean))
    return clean


def _name_taken(name: str) -> str:
    return f"There is an environment {name} already (perhaps a retired one): choose another name, or edit that one."


def _text(value: str, name: str) -> str:
    clean = "".join(f"{line.rstrip()}\n" for line in value.splitlines()).rstrip("\n") + "\n"  # lines keep their numbers
    try:
        found, _ = required_packages.of_text(clean, title=_title(name))
    except requirements.Refused as refused:
        checks.refuse("text", str(refused))
    if not found:
        checks.refuse("text", "It names no package: write a line for each, such as transformers>=4.40.")
    return clean


def _title(name: str) -> str:
    """What messages call its text: "environment vision line 3: ..."."""
    return f"environment {name}"


def _store(
    environment: NamedEnvironment, by: User, text: str, *, number: int, idempotency_key: uuid.UUID | None, now: dt.datetime
) -> NamedVersion:
    found, key = required_packages.of_text(text, title=_title(environment.name))
    # The key is this version's own: what the same text came to elsewhere, or before, is not what this one comes to.
    own = hashlib.sha256(f"{key} {uuid.uuid4()}".encode()).hexdigest()
    return NamedVersion.objects.create(
        environment=environment,
        number=number,
        text=text,
        requirements=found,
        requirements_key=own,
        created_by=by,
        created_at=now,
        idempotency_key=idempotency_key,
    )


def _users(environment: NamedEnvironment) -> str:
    """Who uses it, as the begin of a sentence; empty: nobody."""
    versions = DefinitionVersion.objects.filter(named__environment=environment)
    found = versions.order_by("definition__name").values_list("definition__name", "definition__project__name", "definition").distinct()
    some = [f"{name} in {project}" for name, project, _ in found[:SHOWN_USERS]]
    more = len(found) - len(some)
    names = ", ".join(some) + (f" and {more} more" if more > 0 else "")
    return f"Versions of {len(found)} training definition{'s' * (len(found) != 1)} use it ({names})" if some else ""


def _lock(environment: NamedEnvironment) -> None:
    """Numbers are given one after the other, and nobody begins to use what is being deleted."""
    NamedEnvironment.objects.select_for_update().get(pk=environment.pk)


def _record_change(by: User, what: str, *, now: dt.datetime) -> None:
    ClusterChange.objects.create(at=now, actor=by, text=f"{by.username} {what}")
    checks.audit(by, "%s", what)
    notify.changed("cluster", "environments")


def _sent_before(by: User, idempotency_key: uuid.UUID | None) -> NamedVersion | None:
    return checks.same_request(NamedVersion.objects.filter(created_by=by).select_related("environment"), idempotency_key)
