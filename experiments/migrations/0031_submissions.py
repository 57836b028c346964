import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("experiments", "0030_ended_tokens"),
    ]

    operations = [
        migrations.CreateModel(
            name="Submission",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("args", models.TextField()),
                ("framework", models.CharField(max_length=64)),
                ("instance_group", models.CharField(blank=True, max_length=255)),
                (
                    "run",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="submission", to="experiments.trainingrun"
                    ),
                ),
            ],
        ),
    ]
