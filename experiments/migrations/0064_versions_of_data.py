import django.db.models.deletion
from django.db import migrations, models


def each_is_its_first_version(apps, schema_editor):
    """Every data asset becomes version 1 of a data set of its own."""
    asset, series = apps.get_model("experiments", "DataAsset"), apps.get_model("experiments", "DataSeries")
    for row in asset.objects.filter(series=None).iterator(chunk_size=500):
        row.series = series.objects.create(project_id=row.project_id, last_version=1)
        row.save(update_fields=["series"])


class Migration(migrations.Migration):

    dependencies = [
        ('experiments', '0063_prices_of_slots'),
    ]

    operations = [
        migrations.CreateModel(
            name='DataSeries',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('last_version', models.PositiveIntegerField(default=0)),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='data_series', to='experiments.project')),
            ],
        ),
        migrations.AddField(
            model_name='dataasset',
            name='note',
            field=models.CharField(blank=True, default='', max_length=200),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name='dataasset',
            name='version',
            field=models.PositiveIntegerField(default=1),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name='dataasset',
            name='series',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='versions', to='experiments.dataseries'),
        ),
        migrations.AddField(
            model_name='dataupload',
            name='note',
            field=models.CharField(blank=True, default='', max_length=200),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name='dataupload',
            name='series',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='experiments.dataseries'),
        ),
        migrations.RunPython(each_is_its_first_version, migrations.RunPython.noop, elidable=True),
        migrations.AlterField(
            model_name='dataasset',
            name='series',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='versions', to='experiments.dataseries'),
        ),
        migrations.AddConstraint(
            model_name='dataasset',
            constraint=models.UniqueConstraint(fields=('series', 'version'), name='one_data_version_per_number'),
        ),
    ]
