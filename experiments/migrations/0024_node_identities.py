from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('experiments', '0023_tombstones'),
    ]

    operations = [
        migrations.AddField(
            model_name='node',
            name='fence',
            field=models.BigIntegerField(default=0),
        ),
        migrations.AddField(
            model_name='node',
            name='identity',
            field=models.CharField(blank=True, max_length=64),
        ),
        migrations.AddField(
            model_name='node',
            name='refused_at',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name='node',
            name='removed_at',
            field=models.DateTimeField(null=True),
        ),
    ]
