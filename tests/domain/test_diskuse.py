"""What projects take of the disk: counted from real folders, and what happens to one that may take no more."""

from __future__ import annotations

import datetime as dt
import io

import pytest

from experiments import services
from experiments.errors import DomainError
from experiments.files import diskuse, runfiles
from experiments.files.datastore import Part
from experiments.models import ClusterRules, Project, RunState, TrainingRun, User
from experiments.services import imports
from tests import cast
from tests.domain.test_services import refused

pytestmark = pytest.mark.django_db
NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
MINUTES = dt.timedelta(minutes=1)


def a_run(project: Project, alice: User, *, files: dict[str, int] | None = None, state: str = RunState.RUNNING) -> TrainingRun:
    """One that has begun, with these files of so many bytes."""
    version = cast.definition(project, by=alice, name=f"lenet {TrainingRun.objects.count()}")
    run = services.run_experiment(cast.experiment(project, by=alice, versions=[version]), by=alice, now=NOW)[0]
    TrainingRun.objects.filter(pk=run.pk).update(state=state, started_at=NOW)
    top = runfiles.make(run)
    for name, size in (files or {}).items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(b"x" * size)
    return TrainingRun.objects.get(pk=run.pk)


def test_a_run_is_counted_by_its_blocks_and_files(project: Project, alice: User) -> None:
    run = a_run(project, alice, files={"model/a.pt": 100_000, "log/x": 5000})
    with open(runfiles.folder(run) / "sparse", "wb") as file:
        file.truncate(1 << 40)
    assert diskuse.count(NOW) == 1
    run.refresh_from_db()
    assert run.disk_bytes is not None
    assert 105_000 <= run.disk_bytes < 200_000, "a sparse file takes what is in it"
    assert (run.disk_files, run.disk_counted_at) == (6, NOW)


def test_who_waits_is_not_counted_who_lives_is_again_and_who_has_ended_once_more(project: Project, alice: User) -> None:
    run = a_run(project, alice, files={"a": 10_000}, state=RunState.QUEUED)
    TrainingRun.objects.update(started_at=None)
    assert diskuse.count(NOW) == 0
    TrainingRun.objects.update(started_at=NOW, state=RunState.RUNNING)
    assert diskuse.count(NOW) == 1
    assert diskuse.count(NOW + MINUTES) == 0
    assert diskuse.count(NOW + 3 * MINUTES) == 1
    (runfiles.folder(run) / "last").write_bytes(b"x" * 1_000_000)
    TrainingRun.objects.update(state=RunState.COMPLETED, ended_at=NOW + 4 * MINUTES)
    assert diskuse.count(NOW + 4 * MINUTES) == 1
    assert diskuse.count(NOW + 60 * MINUTES) == 0
    run.refresh_from_db()
    assert run.disk_bytes is not None
    assert run.disk_bytes > 1_000_000


def test_a_run_without_a_folder_takes_nothing_and_a_hostile_one_stops_nobody(project: Project, alice: User) -> None:
    gone, deep, usual = a_run(project, alice), a_run(project, alice), a_run(project, alice, files={"a": 10_000})
    runfiles.folder(gone).rmdir()
    here = runfiles.folder(deep)
    for _ in range(300):  # paths longer than the kernel takes are made from within
        here = here / "d"
        here.mkdir()
    (runfiles.folder(deep) / "loop").symlink_to(".")
    assert diskuse.count(NOW) == 3
    found = dict(TrainingRun.objects.values_list("pk", "disk_files"))
    assert (found[gone.pk], found[deep.pk], found[usual.pk]) == (0, 302, 2)


def test_a_project_takes_what_its_runs_data_and_code_take_and_code_once(project: Project, alice: User) -> None:
    a_run(project, alice, files={"a": 50_000})
    a_run(project, alice, files={"a": 50_000})  # of the same code
    other = services.create_project(by=alice, name="Other")
    services.add_data(project, by=alice, name="digits", files=[("digits.csv", 3000, io.BytesIO(b"1" * 3000))])
    diskuse.count(NOW)
    use = diskuse.of_projects([project.pk, other.pk])
    assert 100_000 <= use[project.pk].runs < 200_000
    assert use[project.pk].data == 3000
    assert use[project.pk].code == project.definitions.earliest("pk").versions.get().bundle.size_bytes
    assert use[other.pk] == diskuse.DiskUse()


@pytest.fixture
def full(project: Project, alice: User, dora: User) -> TrainingRun:
    """A run that has ended, of a project that may take 1 GB and takes a little more."""
    run = a_run(project, alice, state=RunState.COMPLETED)
    TrainingRun.objects.filter(pk=run.pk).update(disk_bytes=10**9 + 1, disk_files=1, disk_counted_at=NOW, ended_at=NOW)
    services.set_policy(by=dora, policy="fair_share", project_disk={str(project.pk): 1})
    return run


def test_a_project_that_takes_all_it_may_begins_no_run_and_takes_no_data(full: TrainingRun, project: Project, alice: User) -> None:
    experiment = full.experiment
    with pytest.raises(DomainError, match=r"takes 1\.0 GB of the 1\.0 GB of disk that it may take: delete runs or data"):
        services.run_experiment(experiment, by=alice)
    assert set(refused(lambda: services.continue_run(full, by=alice))) == {"command"}
    assert set(refused(lambda: services.begin_upload(project, by=alice, name="digits", parts=[Part("a.csv", 10)]))) == {"upload"}
    elsewhere = services.create_project(by=alice, name="Elsewhere")
    services.begin_upload(elsewhere, by=alice, name="digits", parts=[Part("a.csv", 10)])


def test_what_was_deleted_makes_room_at_once(full: TrainingRun, alice: User) -> None:
    experiment = full.experiment
    services.delete_run(full, by=alice)
    services.run_experiment(experiment, by=alice)


def test_an_upload_that_would_be_too_much_is_refused_before_it_arrives(project: Project, alice: User, dora: User) -> None:
    services.set_policy(by=dora, policy="fair_share", project_disk={str(project.pk): 1})
    errors = refused(lambda: services.begin_upload(project, by=alice, name="digits", parts=[Part("a.csv", 2 * 10**9)]))
    assert "and this would be 2.0 GB more" in errors["upload"][0]
    services.begin_upload(project, by=alice, name="digits", parts=[Part("a.csv", 10**8)])


def test_new_projects_get_the_limit_of_new_projects(alice: User, dora: User) -> None:
    services.set_policy(by=dora, policy="fair_share", new_project_disk=20)
    made = services.create_project(by=alice, name="New")
    assert ClusterRules.current().project_disk == {str(made.pk): 20}
    services.set_policy(by=dora, policy="fair_share", new_project_disk=None)
    services.create_project(by=alice, name="Newer")
    assert ClusterRules.current().project_disk == {str(made.pk): 20}
    for wrong in ({"new_project_disk": 0}, {"project_disk": {str(made.pk): 0}}):
        with pytest.raises(DomainError, match="give a whole number from 1"):
            services.set_policy(by=dora, policy="fair_share", **wrong)


def test_a_person_has_one_limit_for_all_their_projects_and_others_have_theirs(project: Project, alice: User, bob: User, dora: User) -> None:
    run = a_run(project, alice, state=RunState.COMPLETED)
    TrainingRun.objects.filter(pk=run.pk).update(disk_bytes=10**9 - 5000, disk_files=1, disk_counted_at=NOW, ended_at=NOW)
    services.set_policy(by=dora, policy="fair_share", each_person_disk=1)
    elsewhere = services.create_project(by=alice, name="Elsewhere")
    errors = refused(lambda: services.begin_upload(elsewhere, by=alice, name="digits", parts=[Part("a.csv", 5000)]))
    assert "What you have made takes 1000 MB of the 1.0 GB of disk that it may take, and this would be 5.0 KB more" in errors["upload"][0]
    services.begin_upload(elsewhere, by=alice, name="digits", parts=[Part("a.csv", 3000)])
    assert diskuse.of_person(alice.pk).data == 3000, "what is announced counts, before it has arrived"
    assert set(refused(lambda: services.begin_upload(elsewhere, by=alice, name="more", parts=[Part("a.csv", 3000)]))) == {"upload"}
    assert set(refused(lambda: imports.begin_import(by=alice, file_name="project.zip", size_bytes=3000))) == {"upload"}
    services.begin_upload(project, by=bob, name="digits", parts=[Part("a.csv", 5000)])
    TrainingRun.objects.filter(pk=run.pk).update(disk_bytes=10**9)
    assert set(refused(lambda: cast.definition(elsewhere, by=alice, name="more code"))) == {"upload"}
    with pytest.raises(DomainError, match="What you have made takes"):
        services.run_experiment(run.experiment, by=alice)
    services.run_experiment(run.experiment, by=bob)
    services.set_policy(by=dora, policy="fair_share", each_person_disk=None)
    services.run_experiment(run.experiment, by=alice)


def test_sizes_are_spelled_as_pages_say_them() -> None:
    assert [diskuse.spelled(count) for count in (0, 999, 1500, 20 * 10**9, 3 * 10**12)] == ["0 B", "999 B", "1.5 KB", "20.0 GB", "3.0 TB"]
