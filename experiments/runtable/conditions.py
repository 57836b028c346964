"""A filter's tree as a condition of a query on TrainingRun: values become parameters, names are those of columns that there are."""

from __future__ import annotations

import datetime as dt
from functools import reduce
from operator import and_, or_

from django.db.models import Q

from experiments.runtable import language
from experiments.runtable.catalogue import Catalogue
from experiments.runtable.language import Among, Both, Compare, Is, Node, Not


def condition(text: str, catalogue: Catalogue, *, now: dt.datetime) -> Q:
    """Raises Refused."""
    tree = language.parse(text)
    return Q() if tree is None else _of(tree, catalogue, now)


def _of(node: Node, catalogue: Catalogue, now: dt.datetime) -> Q:
    match node:
        case Compare(name, operator, value):
            return catalogue.named(name).condition(operator, value, now=now)
        case Among(name, values):
            return catalogue.named(name).among(values)
        case Is(name, "nan"):
            return catalogue.named(name).is_nan(name)
        case Is(name, _):
            return catalogue.named(name).is_set()
        case Not(inner):
            return ~_of(inner, catalogue, now)
        case Both(parts):
            return reduce(and_, (_of(part, catalogue, now) for part in parts))
    return reduce(or_, (_of(part, catalogue, now) for part in node.parts))
