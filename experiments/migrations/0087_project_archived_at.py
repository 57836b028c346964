from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('experiments', '0086_projects_in_pieces'),
    ]

    operations = [
        migrations.AddField(
            model_name='project',
            name='archived_at',
            field=models.DateTimeField(null=True),
        ),
    ]
