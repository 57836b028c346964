from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('experiments', '0065_imported_comments'),
    ]

    operations = [
        migrations.RenameModel(old_name='MetricStretch', new_name='MetricRollup'),
    ]
