"""Utilization by the field's words: the tables are renamed with all that is in them."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('experiments', '0072_node_tokens'),
    ]

    operations = [
        migrations.RenameModel(old_name='SlotUse', new_name='UtilizationSample'),
        migrations.RenameModel(old_name='PresentUse', new_name='LatestUtilization'),
        migrations.AlterField(
            model_name='utilizationsample',
            name='run',
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name='utilization_samples',
                to='experiments.trainingrun',
            ),
        ),
        migrations.AlterField(
            model_name='latestutilization',
            name='run',
            field=models.OneToOneField(
                on_delete=django.db.models.deletion.CASCADE,
                primary_key=True,
                related_name='latest_utilization',
                serialize=False,
                to='experiments.trainingrun',
            ),
        ),
    ]
