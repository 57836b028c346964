"""What there was in a database from before is there after an upgrade, as the new version has it."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from experiments.models import DataAsset, DataUpload, LoggedFacts, Metric, MetricRollup, MetricSeries, TrainingRun
from tests.domain.test_run_values import columns, values
from tests.domain.upgrades import Before, database_from_before


def experiment_of(before: Before, person: str) -> dict[str, Any]:
    """What each run of a new experiment of a new person has."""
    by = before.row("User", username=person)
    project = before.row("Project", name="p", created_by=by)
    definition = before.row("TrainingDefinition", project=project, name="d", created_by=by)
    bundle = before.row("Bundle", sha256=f"{person:0<64}", size_bytes=1, entries=1)
    version = before.row("DefinitionVersion", definition=definition, number=1, bundle=bundle, file_name="c.zip", created_by=by)
    experiment = before.row("Experiment", project=project, name="e", created_by=by)
    return {"experiment": experiment, "version": version, "submitted_by": by, "submitted_at": timezone.now()}


class FoldersAndSeeds:
    """Runs have folders by their numbers, and the seed that they said they had."""

    def runs(self, before: Before) -> None:
        facts = experiment_of(before, "alice")
        self.numbers = [before.row("TrainingRun", name=name, **facts).pk for name in "abcde"]
        series = before.row("MetricSeries", run_id=self.numbers[0], group="train", name="loss")
        before.row("Metric", series=series, step=1, seq=1, epoch=1, t=0.0, value=1.0)

    def facts(self, before: Before) -> None:
        with_facts, without, _ = self.numbers[2:]
        before.row("LoggedFacts", run_id=with_facts, parameters={"lr": "1"})
        before.row("SlotUse", run_id=with_facts, tick=1, t=5.0, counted_s=5.0, busy_s=2.0)
        before.row("PresentUse", run_id=with_facts, t=5.0, slots=[[1]])
        for run, seq, seed in ((with_facts, 1, 3), (without, 1, 4), (without, 9, 5), (10**6, 1, 6)):
            said = {"kind": "started", "message": "", "detail": {"seed": seed}}
            before.row("RunEvent", run_id=run, seq=seq, at=timezone.now(), **said)

    def are_kept(self) -> None:
        with_facts, without, never = self.numbers[2:]
        mine = TrainingRun.objects.filter(pk__in=self.numbers)
        assert {run.pk: run.folder for run in mine} == {number: str(number) for number in self.numbers}
        assert Metric.objects.get().series.run_id == self.numbers[0]
        said = LoggedFacts.objects.filter(run__in=self.numbers)
        assert dict(said.values_list("run_id", "seed")) == {with_facts: 3, without: 5}
        assert LoggedFacts.objects.get(run=with_facts).parameters == {"lr": "1"}
        measured = TrainingRun.objects.get(pk=with_facts)
        assert (measured.utilization_samples.get().busy_s, measured.latest_utilization.slots) == (2.0, [[1]])
        assert never in TrainingRun.objects.values_list("pk", flat=True)
        TrainingRun.objects.get(pk=self.numbers[0]).delete()
        assert MetricSeries.objects.filter(run_id=self.numbers[0]).count() == 1, "what there is much of goes later, in pieces"


class Values:
    """A run has its arguments and tags as values, of which it is known what varies, and its series know how far they went."""

    def runs(self, before: Before) -> None:
        same = experiment_of(before, "bob")
        rates = ("0.1", "0.3")
        first, second = (before.row("TrainingRun", name="r", command=f"main.py --lr {lr} --seed 1", tags=["x"], **same) for lr in rates)
        self.numbers = (first.pk, second.pk)
        before.row("LoggedFacts", run_id=second.pk, arguments={"lr": "0.3", "seed": "1", "amp": "off"}, parameters={"p": "2"})
        series = before.row("MetricSeries", run_id=first.pk, group="test", name="loss", points=2, last_step=70, last_value=2.0)
        same = {"series": series, "least": 1.0, "least_t": 0.0, "greatest_t": 0.0}
        before.row("MetricStretch", index=0, least_step=3, greatest=4.0, greatest_step=1, **same)
        before.row("MetricStretch", index=1, least_step=65, greatest=9.0, greatest_step=70, **same)
        before.row("MetricSeries", run_id=second.pk, group="test", name="loss")
        before.row("MetricSeries", run_id=10**6, group="train", name="of a run that is gone")

    def are_found(self) -> None:
        rollups = MetricRollup.objects.filter(series__run_id__in=self.numbers).order_by("index")
        assert list(rollups.values_list("least", "greatest_step")) == [(1.0, 1), (1.0, 70)]
        one, other = TrainingRun.objects.filter(pk__in=self.numbers).order_by("pk")
        assert values(one) == {"lr": ("0.1", 0.1), "seed": ("1", 1.0)}
        assert {name: text for name, (text, _) in values(other).items()} == {"lr": "0.3", "seed": "1", "amp": "off", "p": "2"}
        assert values(one, "tag") == {"x": ("", None)}
        assert columns(one) == {"lr": True, "seed": False, "amp": False, "p": False}
        assert columns(one, "train", "test") == {"loss": False}
        curve = MetricSeries.objects.get(run=one)
        assert (curve.least, curve.least_step, curve.greatest, curve.greatest_step) == (1.0, 3, 9.0, 70)


class DataSets:
    """What was a data set is version 1 of one of its own."""

    def are_there(self, before: Before) -> None:
        by = before.row("User", username="carol")
        project = before.row("Project", name="p", created_by=by)
        facts = {"project": project, "files": 1, "size_bytes": 3, "sha256": "0" * 64, "created_by": by}
        for name in ("digits", "digits", "letters"):
            before.row("DataAsset", name=name, **facts)
        before.row("DataUpload", project=project, name="more", parts=[], created_by=by)

    def have_versions(self) -> None:
        assets = DataAsset.objects.order_by("pk")
        assert [str(each) for each in assets] == ["digits v1", "digits v1", "letters v1"]
        assert len({each.series_id for each in assets}) == 3
        assert {each.series.last_version for each in assets} == {1}
        assert DataUpload.objects.get().series is None


@pytest.mark.timeout(600)  # some eighty migrations
@pytest.mark.django_db(transaction=True)
def test_what_there_was_before_an_upgrade_is_there_after_it() -> None:
    """On its way it stops at versions each of which leaves something to the next."""
    folders, found, data = FoldersAndSeeds(), Values(), DataSets()
    with database_from_before() as before:
        before.upgrade("0017_processors")
        folders.runs(before)
        before.upgrade("0056_each_person_disk")
        folders.facts(before)
        before.upgrade("0057_setup_of_a_run")
        found.runs(before)
        before.upgrade("0063_prices_of_slots")
        data.are_there(before)
    found.are_found()
    data.have_versions()
    folders.are_kept()
