"""Runs over several machines by the field's words: a head node and remote agents. Tables and columns are renamed with all that is in them."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('experiments', '0075_driver_meetings'),
    ]

    operations = [
        migrations.RenameField(model_name='trainingrun', old_name='home', new_name='head_node'),
        migrations.RenameModel(old_name='Station', new_name='RemoteAgent'),
        migrations.RenameField(model_name='remoteagent', old_name='gave_up', new_name='abandoned'),
        migrations.RemoveConstraint(model_name='remoteagent', name='one_station_per_machine'),
        migrations.AlterField(
            model_name='remoteagent',
            name='node',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='remote_agents', to='experiments.node'),
        ),
        migrations.AlterField(
            model_name='remoteagent',
            name='run',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='remote_agents', to='experiments.trainingrun'),
        ),
        migrations.AddConstraint(
            model_name='remoteagent',
            constraint=models.UniqueConstraint(fields=('run', 'node'), name='one_agent_per_machine'),
        ),
    ]
