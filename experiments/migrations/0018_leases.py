from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('experiments', '0017_processors'),
    ]

    operations = [
        migrations.CreateModel(
            name='Lease',
            fields=[
                ('name', models.CharField(max_length=40, primary_key=True, serialize=False)),
                ('holder', models.CharField(max_length=200)),
                ('until', models.DateTimeField()),
            ],
        ),
    ]
