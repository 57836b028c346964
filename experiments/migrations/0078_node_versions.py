from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('experiments', '0077_ray'),
    ]

    operations = [
        migrations.AddField(
            model_name='node',
            name='protocol_version',
            field=models.PositiveIntegerField(null=True),
        ),
        migrations.AddField(
            model_name='node',
            name='protocol_oldest',
            field=models.PositiveIntegerField(null=True),
        ),
    ]
