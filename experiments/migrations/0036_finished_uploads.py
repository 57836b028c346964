from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('experiments', '0023_tombstones'),
    ]

    operations = [
        migrations.AddField(
            model_name='dataasset',
            name='upload',
            field=models.BigIntegerField(db_index=True, null=True),
        ),
    ]
