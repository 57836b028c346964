"""What a run's process had; the seed of runs from before stands in their events."""

from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def seeds_of_old_runs(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    events, facts = apps.get_model("experiments", "RunEvent"), apps.get_model("experiments", "LoggedFacts")
    found: dict[int, int] = {}
    for run, detail in events.objects.filter(kind="started").order_by("run_id", "seq").values_list("run_id", "detail").iterator():
        seed = detail.get("seed")
        if isinstance(seed, int) and -(2**63) < seed < 2**63:
            found[run] = seed
    there = set(apps.get_model("experiments", "TrainingRun").objects.values_list("pk", flat=True))  # events outlive their runs for a while
    found = {run: seed for run, seed in found.items() if run in there}
    known = set(facts.objects.values_list("run_id", flat=True))
    for run in found.keys() & known:
        facts.objects.filter(run_id=run).update(seed=found[run])
    facts.objects.bulk_create([facts(run_id=run, seed=found[run]) for run in sorted(found.keys() - known)], batch_size=500)


class Migration(migrations.Migration):
    dependencies = [("experiments", "0056_each_person_disk")]

    operations = [
        migrations.AddField(model_name="loggedfacts", name="arguments", field=models.JSONField(default=dict)),
        migrations.AddField(model_name="loggedfacts", name="packages", field=models.JSONField(default=dict)),
        migrations.AddField(model_name="loggedfacts", name="python", field=models.CharField(blank=True, default="", max_length=40)),
        migrations.AddField(model_name="loggedfacts", name="seed", field=models.BigIntegerField(null=True)),
        migrations.RunPython(seeds_of_old_runs, migrations.RunPython.noop, elidable=True),
    ]
