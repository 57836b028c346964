from django.db import migrations, models


class Migration(migrations.Migration):
    """Wrong passwords are counted by the studio itself; the tables of django-axes, which nothing reads any more, hold names and addresses."""

    dependencies = [
        ('experiments', '0019_storage'),
    ]

    operations = [
        migrations.CreateModel(
            name='LoginFailure',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('username', models.CharField(max_length=150)),
                ('address', models.CharField(max_length=64)),
                ('browser', models.CharField(blank=True, max_length=32)),
                ('at', models.DateTimeField(db_index=True)),
            ],
            options={
                'indexes': [
                    models.Index(fields=['username', 'at'], name='login_failure_of_name'),
                    models.Index(fields=['address', 'at'], name='login_failure_of_address'),
                ],
            },
        ),
        migrations.RunSQL(
            [f'DROP TABLE IF EXISTS axes_{name}' for name in ('accessattemptexpiration', 'accessattempt', 'accessfailurelog', 'accesslog')],
            reverse_sql=migrations.RunSQL.noop,
            elidable=True,  # these tables were there before the first of our own
        ),
    ]
