"""A run knows whether what its script says of its progress is of its whole training. Of runs before it, nobody knows."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [("experiments", "0090_browser_sessions")]

    operations = [
        migrations.AddField(
            model_name="trainingrun",
            name="bar_is_whole",
            field=models.BooleanField(default=False, db_default=False),
        ),
    ]
