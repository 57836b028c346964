import uuid

import django.db.models.deletion
from django.db import migrations, models


def of_a_run(name):
    """What a run has very many rows of is removed after it, in pieces: the database does not insist that the run is there."""
    run = models.ForeignKey(
        db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name=name, to="experiments.trainingrun"
    )
    return run


class Migration(migrations.Migration):
    dependencies = [("experiments", "0022_run_folders")]

    operations = [
        migrations.CreateModel(
            name="Installation",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.UUIDField(default=uuid.uuid4)),
                ("made_at", models.DateTimeField(auto_now_add=True)),
            ],
        ),
        migrations.CreateModel(
            name="Tombstone",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[("run", "Run"), ("asset", "Data asset"), ("upload", "Upload"), ("bundle", "Code")], max_length=8
                    ),
                ),
                ("key", models.CharField(max_length=64)),
                ("number", models.BigIntegerField(null=True)),
                ("by", models.CharField(blank=True, max_length=150)),
                ("at", models.DateTimeField()),
                ("trashed_at", models.DateTimeField(null=True)),
                ("emptied_at", models.DateTimeField(null=True)),
            ],
            options={
                "ordering": ["at", "id"],
                "indexes": [models.Index(condition=models.Q(("emptied_at", None)), fields=["at"], name="tombstones_to_clear")],
            },
        ),
        migrations.AlterField("generationrecord", "run", of_a_run("generations")),
        migrations.AlterField("metricseries", "run", of_a_run("series")),
        migrations.AlterField("runevent", "run", of_a_run("events")),
        migrations.AlterField("slotuse", "run", of_a_run("use")),
    ]
