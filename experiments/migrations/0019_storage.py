"""Whether runs can write on a machine, and by what a journal is known again that was cut short."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("experiments", "0018_leases")]

    operations = [
        migrations.AddField("node", "storage_problem", models.CharField(blank=True, default="", max_length=500), preserve_default=False),
        migrations.AddField("journalcursor", "mark", models.CharField(blank=True, default="", max_length=64), preserve_default=False),
    ]
