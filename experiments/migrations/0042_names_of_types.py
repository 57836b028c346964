from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('experiments', '0041_logged_facts'),
    ]

    operations = [
        migrations.AlterField(
            model_name='definitionversion',
            name='distributed',
            field=models.CharField(
                choices=[
                    ('elastic', 'Elastic distributed training (exact)'),
                    ('torchrun_elastic', 'torchrun elastic'),
                    ('torchrun', 'torchrun'),
                    ('single', 'Single process'),
                ],
                default='elastic',
                max_length=16,
            ),
        ),
    ]
