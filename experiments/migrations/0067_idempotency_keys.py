from django.db import migrations, models

MODELS = (
    'runcomment', 'definitionversion', 'experiment', 'modelversion', 'namedversion', 'project', 'projectimport', 'trainingrun',
)


class Migration(migrations.Migration):

    dependencies = [
        ('experiments', '0066_metric_rollups'),
    ]

    # Databases rename a column in their constraints too, so that no index of a large table is made anew; Django does not.
    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[migrations.RemoveConstraint('trainingrun', 'one_run_per_request')],
        ),
        *(migrations.RenameField(name, 'request_id', 'idempotency_key') for name in MODELS),
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.AddConstraint(
                    'trainingrun', models.UniqueConstraint(fields=['idempotency_key', 'position'], name='one_run_per_request'),
                ),
            ],
        ),
    ]
