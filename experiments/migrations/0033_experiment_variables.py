from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("experiments", "0032_model_drafts"),
    ]

    operations = [
        migrations.AddField(
            model_name="experiment",
            name="environment",
            field=models.JSONField(blank=True, default=dict),
        ),
    ]
