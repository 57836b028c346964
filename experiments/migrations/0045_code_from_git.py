from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('experiments', '0044_packages_of_versions'),
    ]

    operations = [
        migrations.AddField(
            model_name='definitionversion',
            name='git_address',
            field=models.CharField(blank=True, max_length=500),
        ),
        migrations.AddField(
            model_name='definitionversion',
            name='git_commit',
            field=models.CharField(blank=True, max_length=64),
        ),
        migrations.AddField(
            model_name='definitionversion',
            name='git_folder',
            field=models.CharField(blank=True, max_length=500),
        ),
        migrations.AddField(
            model_name='definitionversion',
            name='git_ref',
            field=models.CharField(blank=True, max_length=255),
        ),
        migrations.AddField(
            model_name='trainingdefinition',
            name='git_access',
            field=models.TextField(blank=True),
        ),
    ]
