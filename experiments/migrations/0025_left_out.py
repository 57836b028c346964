from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("experiments", "0024_node_identities")]

    operations = [
        migrations.AddField("journalcursor", "left_out", models.JSONField(blank=True, default=dict)),
        migrations.AddField("journalcursor", "redone_to", models.BigIntegerField(default=0)),
    ]
