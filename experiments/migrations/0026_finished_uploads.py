from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('experiments', '0025_left_out'),
    ]

    operations = [
        migrations.AddField(
            model_name='dataasset',
            name='upload',
            field=models.BigIntegerField(db_index=True, null=True),
        ),
    ]
