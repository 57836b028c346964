"""What people say and choose around runs, in the archive of a project: comments, policies of checkpoints, saved tables, repeated runs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.utils import timezone

from experiments import services
from experiments.files import runfiles
from experiments.files.checkpoint_policy import Policy
from experiments.models import DroppedCheckpoint, Notification, Project, ProjectImport, RunComment, SavedView, TrainingRun, User
from experiments.selectors import comments as shown
from experiments.selectors import reproductions
from experiments.services import comments, projects, reproduction, saved_views
from experiments.services.checkpoints import checked
from tests import cast, transferred
from tests.conftest import SentMessages
from tests.transferred import Archive, exported, imported, refused
from training_runtime import journal

pytestmark = pytest.mark.usefixtures("said")
FUTURE = "2999-01-01T00:00:00+00:00"
LAST = Policy(last=1, best=1, metric="test loss")


@pytest.fixture
def archive(project: Project, alice: User, bob: User, said: SentMessages) -> Archive:
    """Of a project with a run and one that repeats it."""
    transferred.small(project, by=alice)
    now, experiment = timezone.now(), project.experiments.get()
    run = experiment.runs.get()
    type(experiment).objects.filter(pk=experiment.pk).update(checkpoints=checked(LAST))
    again = reproduction.reproduce(run, by=bob, now=now)
    services.set_checkpoints(again, by=bob, policy=LAST, now=now)
    services.stop_run(again, by=bob, now=now)
    comments.add_comment(run, by=bob, text="Good, see @charlie", now=now - dt.timedelta(hours=1))
    comments.change_comment(comments.add_comment(run, by=alice, text="Is it?", now=now), by=alice, text="It is.", now=now)
    comments.delete_comment(comments.add_comment(run, by=alice, text="Taken back."), by=alice)
    for name, shared, of in (("By loss", True, None), ("Of it", True, experiment), ("Mine", False, None)):
        saved_views.save_view(project, by=alice, name=name, query="sort=-loss&junk=1", shared=shared, experiment=of, now=now)
    return Archive.of(exported(project))


def brought(archive: Archive, by: User) -> Project:
    order = imported(archive.packed(), by)
    assert (order.state, order.says) == (ProjectImport.State.DONE, "")
    assert order.project is not None
    return order.project


def runs(project: Project) -> list[TrainingRun]:
    return list(TrainingRun.objects.filter(experiment__project=project).order_by("pk"))


def test_comments_are_there_again_in_the_name_of_who_wrote_them(archive: Archive, charlie: User, project: Project) -> None:
    told = Notification.objects.count()
    first, second = runs(brought(archive, charlie))
    old, new = list(shown.there(runs(project)[0])), list(shown.there(first))
    assert [(row.text, row.at, row.edited_at) for row in new] == [(row.text, row.at, row.edited_at) for row in old]
    assert [shown.author_of(row) for row in new] == ["bob (imported)", "alice (imported)"]
    assert not second.comments.exists()
    assert not any("Taken back" in row.text for row in RunComment.objects.filter(run=first)), "what was deleted does not travel"
    assert Notification.objects.count() == told, "who was named long ago is not told again"


def test_an_imported_comment_is_nobodys_here_and_keeps_its_name_when_it_travels_on(
    archive: Archive, charlie: User, alice: User, bob: User
) -> None:
    made = brought(archive, charlie)
    projects.add_member(made, by=charlie, username="bob", role="editor")
    row = runs(made)[0].comments.first()
    assert row is not None
    with pytest.raises(PermissionDenied, match="Somebody else wrote this comment"):
        comments.change_comment(row, by=bob, text="I never said so.")
    again = brought(Archive.of(exported(made)), alice)
    assert [shown.author_of(each) for each in runs(again)[0].comments.all()] == ["bob (imported)", "alice (imported)"]
    comments.delete_comment(row, by=charlie, any_ones=True)
    assert shown.there(runs(made)[0]).count() == 1


def test_the_tables_that_all_members_see_are_there_again_and_a_persons_own_are_not(archive: Archive, charlie: User) -> None:
    made = brought(archive, charlie)
    found = SavedView.objects.filter(project=made).order_by("name")
    assert [(each.name, each.query, each.experiment, each.person, each.saved_by) for each in found] == [
        ("By loss", "sort=-loss", None, None, charlie),
        ("Of it", "sort=-loss", made.experiments.get(), None, charlie),
    ]


def test_a_repeated_run_is_tied_to_the_run_that_came_with_it(archive: Archive, charlie: User) -> None:
    first, second = runs(brought(archive, charlie))
    assert (first.reproduces, second.reproduces) == (None, first.pk)
    assert reproductions.of_others(first) == [second]


def test_what_repeats_itself_or_a_later_run_or_one_that_did_not_travel_repeats_none(archive: Archive, charlie: User) -> None:
    archive.run(0)["reproduces"] = archive.run(1)["number"]
    for number in (archive.run(1)["number"], 10**30):
        archive.run(1)["reproduces"] = number
        assert [run.reproduces for run in runs(brought(archive, charlie))] == [None, None]


def test_the_policy_of_checkpoints_is_there_again_and_removes_nothing(archive: Archive, charlie: User) -> None:
    """Also where a stranger's archive says that less is kept than is there."""
    run = archive.run()
    paths = [f"model/train/model_epoch_{epoch}.pth" for epoch in (1, 2, 3)]
    lines = b"".join(
        journal.format_line(run["number"], seq, 1.7e9, journal.Checkpoint(seq, seq - 100, "model", (path,), 1))
        for seq, path in enumerate(paths, start=101)
    )
    for path in paths:
        archive.put(run, path, b"x")
    archive.put(run, journal.FILE_NAME, archive.entries[f"runs/{run['number']}/{journal.FILE_NAME}"] + lines)
    run["checkpoints"] = {"last": 1}
    made = brought(archive, charlie)
    first, second = runs(made)
    assert made.experiments.get().checkpoints == LAST.stored()
    assert (first.checkpoints, second.checkpoints) == ({"last": 1}, LAST.stored())
    assert first.events.filter(kind="checkpoint").count() == 3, "else nothing could have been removed"
    assert not DroppedCheckpoint.objects.filter(run=first).exists()
    cast.empty_trash()
    assert all((runfiles.folder(first) / path).is_file() for path in paths)


def test_an_archive_from_before_is_taken_in_without_them(archive: Archive, charlie: User) -> None:
    del archive.manifest["views"], archive.manifest["experiments"][0]["checkpoints"]
    for run in (archive.run(0), archive.run(1)):
        del run["comments"], run["checkpoints"], run["reproduces"]
    made = brought(archive, charlie)
    assert (made.saved_views.count(), made.experiments.get().checkpoints) == (0, {})
    assert [(run.reproduces, run.checkpoints, run.comments.count()) for run in runs(made)] == [(None, {}, 0)] * 2


Change = Callable[[Archive], None]


def _comment(**fields: Any) -> Change:
    return lambda archive: archive.run()["comments"][0].update(fields)


def _view(**fields: Any) -> Change:
    return lambda archive: archive.manifest["views"][0].update(fields)


def _keeps(**fields: Any) -> Change:
    def change(archive: Archive) -> None:
        archive.run()["checkpoints"] = fields

    return change


CHANGES: dict[str, tuple[Change, str]] = {
    "a comment in the future": (_comment(at=FUTURE), "check the clocks of both studios"),
    "one that was changed in the future": (_comment(edited_at=FUTURE), "check the clocks of both studios"),
    "one of nothing": (_comment(text=" "), "A comment on run"),
    "a long one": (_comment(text="t" * 5000), "use at most 4000"),
    "a text that is none": (_comment(text=["t"]), "is not of the form"),
    "an author with a long name": (_comment(by="n" * 151), "use at most 150"),
    "an author with a bell": (_comment(by="a\u0007"), "control character"),
    "too many": (lambda archive: archive.run().update(comments=archive.run()["comments"] * 600), "at most 1000 are taken"),
    "a view of no name": (_view(name=""), "Give a name."),
    "a view of a long name": (_view(name="n" * 81), "use at most 80"),
    "a view of no experiment": (_view(experiment=999), "of an experiment that the archive has not"),
    "a view of a long address": (_view(query="&".join(f"columns={'c' * 60}{n}" for n in range(100))), "show fewer columns"),
    "a view in the future": (_view(at=FUTURE), "check the clocks of both studios"),
    "two views of one name": (lambda archive: archive.manifest["views"].append(archive.manifest["views"][0]), "two of one name"),
    "a thousand checkpoints and one": (_keeps(last=1001), "give a whole number from 1 to 1000"),
    "fewer than none": (_keeps(last=-1), "give a whole number from 1 to 1000"),
    "the best by nothing": (_keeps(last=1, best=1), "Name the metric"),
    "a policy of an experiment": (
        lambda archive: archive.manifest["experiments"][0].update(checkpoints={"last": 1, "best": 5, "metric": "x"}), "Name the metric"
    ),
    "a policy that is none": (_keeps(last="all"), "is not of the form"),
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGES)
def test_nonsense_in_them_is_refused(what: str, archive: Archive, charlie: User, home: Path) -> None:
    change, says = CHANGES[what]
    change(archive)
    assert says in refused(archive.packed(), charlie, home)
