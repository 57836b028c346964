"""Versions from before had the network, so they go on asking for it; new ones have none unless they say so."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('experiments', '0048_ceiling_of_priority'),
    ]

    operations = [
        migrations.AddField(
            model_name='clusterrules',
            name='new_projects_network',
            field=models.BooleanField(default=True),
        ),
        migrations.AddField(
            model_name='clusterrules',
            name='without_network',
            field=models.JSONField(blank=True, default=list),
        ),
        migrations.AddField(
            model_name='definitionversion',
            name='network',
            field=models.CharField(choices=[('none', 'None'), ('outward', 'The internet')], default='outward', max_length=8),
        ),
        migrations.AlterField(
            model_name='definitionversion',
            name='network',
            field=models.CharField(choices=[('none', 'None'), ('outward', 'The internet')], default='none', max_length=8),
        ),
    ]
