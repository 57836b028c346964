from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('experiments', '0078_node_versions'),
    ]

    operations = [
        migrations.AlterField(
            model_name='pilotpool',
            name='provider',
            field=models.CharField(choices=[('slurm', 'Slurm'), ('ray', 'Ray'), ('kubernetes', 'Kubernetes')], default='slurm', max_length=16),
        ),
    ]
