from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("experiments", "0026_finished_uploads")]

    operations = [
        migrations.AddField("trainingrun", "exact", models.BooleanField(null=True)),
        migrations.AddField("trainingrun", "exact_checked", models.BooleanField(default=False)),
        migrations.AddField("trainingrun", "exact_reasons", models.JSONField(blank=True, default=list)),
    ]
