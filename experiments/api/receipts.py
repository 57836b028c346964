"""Receipts of runs, and runs that are done again to see whether the same comes out."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest
from ninja import Router, Schema
from ninja.responses import Status

from experiments import access, services
from experiments.api.auth import person
from experiments.api.requests import idempotency_key
from experiments.api.runs import Run, run_response
from experiments.api.schemas import Body
from experiments.runs import seals
from experiments.selectors import receipts, reproductions

router = Router(tags=["runs"])


class Seal(Schema):
    """Of the card as JSON in ASCII, with sorted names and without spaces: its SHA-256, and an Ed25519 signature with the studio's key."""

    sha256: str
    key: str
    signature: str


class Receipt(Schema):
    """`card`: what the run computed with, its slots over time, the digests of its state after each epoch, its last figures."""

    kind: str
    card: dict[str, Any]
    seal: Seal


class ShownReceipt(Body):
    """A receipt as it was given out."""

    kind: str
    card: dict[str, Any]
    seal: Seal


class Checked(Schema):
    """`ours`: this studio sealed it, and nothing in it was changed since."""

    ours: bool
    key: str


class UnlikeInput(Schema):
    name: str
    then: str
    now: str


class FirstUnlikeValue(Schema):
    """The first value of a curve that is not the same."""

    curve: str
    step: int
    then: float | None
    now: float | None


class Reproduction(Schema):
    """`result`: waiting, same so far, identical, same figures, different or unknown; `epochs`: after so many the state was the same.
    `inputs`: what the two runs were not given alike, where it is known of both."""

    run: int
    result: str
    sentence: str
    epochs: int
    inputs: list[UnlikeInput]
    apart: FirstUnlikeValue | None


@router.get("/runs/{int:run}/receipt", response=Receipt)
def receipt(request: HttpRequest, run: int) -> dict[str, Any]:
    """Sealed, of a run that has ended."""
    found = access.run(person(request), run)
    services.check_receipt(found)
    return seals.sealed(receipts.card(found))


@router.post("/receipts/check", response=Checked)
def check_receipt(request: HttpRequest, body: ShownReceipt) -> Checked:
    """Whether this studio sealed it as it is."""
    person(request)
    return Checked(ours=seals.is_ours(body.model_dump()), key=seals.public_key())


@router.post("/runs/{int:run}/reproduce", response={201: Run})
def reproduce_run(request: HttpRequest, run: int) -> Status[Run]:
    """The same run again, on whatever slots there are; `/runs/ID/reproduction` of the new one says whether the same comes out."""
    user = person(request)
    made = services.reproduce(access.run(user, run, need="write"), by=user, idempotency_key=idempotency_key(request))
    return Status(201, run_response(request, access.run(user, made.pk)))


@router.get("/runs/{int:run}/reproduction", response=Reproduction)
def reproduction(request: HttpRequest, run: int) -> Reproduction:
    """How a run that repeats another one compares with it, so far or in the end."""
    user = person(request)
    found = access.run(user, run)
    told = reproductions.of_run(user, found)
    if told is None or found.reproduces is None:
        raise Http404("This run repeats no other one: POST /runs/ID/reproduce makes one that does.")
    apart = told.curves.apart if told.curves is not None else None
    return Reproduction(
        run=found.reproduces,
        result=told.result,
        sentence=told.sentence,
        epochs=told.epochs,
        inputs=[UnlikeInput(name=name, then=then, now=now) for name, then, now in told.inputs],
        apart=FirstUnlikeValue(curve=apart[0], step=apart[1], then=apart[2], now=apart[3]) if apart is not None else None,
    )
