from django.db import migrations, models
from django.db.models.functions import Cast

import experiments.models.runs


def called_by_their_numbers(apps, schema_editor):
    """The folders of runs that exist already keep their names."""
    apps.get_model("experiments", "TrainingRun").objects.update(folder=Cast("id", models.CharField(max_length=36)))


class Migration(migrations.Migration):
    dependencies = [("experiments", "0021_indexes_of_large_tables")]

    operations = [
        migrations.AddField("trainingrun", "folder", models.CharField(default="", editable=False, max_length=36)),
        migrations.RunPython(called_by_their_numbers, migrations.RunPython.noop, elidable=True),
        migrations.AlterField(
            "trainingrun",
            "folder",
            models.CharField(default=experiments.models.runs.new_folder, editable=False, max_length=36, unique=True),
        ),
    ]
