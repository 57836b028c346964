"""Reads of what people say about a run."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import QuerySet
from django.utils.safestring import SafeString, mark_safe

from experiments import access
from experiments.models import RunComment, TrainingRun, User
from experiments.selectors.registry import rendered

DELETED_USER = "deleted user"
SHOWN = 100  # that a page shows at first


@dataclass(frozen=True)
class CommentRow:
    """A comment, its Markdown as HTML, and what the reader may do to it."""

    row: RunComment
    author: str
    html: SafeString
    may_edit: bool
    may_delete: bool


@dataclass(frozen=True)
class Conversation:
    """The last comments on a run, the oldest of them first; `earlier`: how many more there are."""

    rows: list[CommentRow]
    earlier: int


def of_run(run: TrainingRun, *, reader: User, most: int | None = SHOWN) -> Conversation:
    """The last `most`, or all. `run`: as access has fetched it for the reader."""
    found, writes, owns = there(run), access.may(run.experiment.project, "write"), access.may(run.experiment.project, "admin")
    earlier = max(0, found.count() - most) if most is not None else 0
    return Conversation([_comment_row(row, reader, writes=writes, owns=owns) for row in found[earlier:]], earlier)


def there(run: TrainingRun) -> QuerySet[RunComment]:
    return run.comments.filter(deleted_at=None).select_related("author")


def author_of(row: RunComment) -> str:
    """Whoever is called so where the run was imported from need not be who is called so here."""
    if row.author is not None:
        return row.author.username
    return f"{row.imported_author} (imported)" if row.imported_author else DELETED_USER


def _comment_row(row: RunComment, reader: User, *, writes: bool, owns: bool) -> CommentRow:
    mine = writes and row.author_id == reader.pk
    html = mark_safe(rendered(row.text))  # noqa: S308  (what is HTML in it is shown as text)
    return CommentRow(row, author_of(row), html, mine, mine or owns)
