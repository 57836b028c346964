"""Arguments and tags of runs as rows, the columns of experiments, least and greatest values of curves, and tables that people keep. Those of
the runs that there are follow from what is stored of them."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import django.db.models.deletion
from django.apps.registry import Apps
from django.conf import settings
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.models import Max, Min, OuterRef, Q, Subquery

from experiments.runs.run_values import arguments_of, number_of

AT_ONCE = 500


def in_pieces(found: Iterable[Any]) -> Iterator[list[Any]]:
    rest = iter(found)
    while some := list(islice(rest, AT_ONCE)):
        yield some


def values_of_old_runs(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    runs, facts = apps.get_model("experiments", "TrainingRun"), apps.get_model("experiments", "LoggedFacts")
    values, columns = apps.get_model("experiments", "RunValue"), apps.get_model("experiments", "RunColumn")
    seen: dict[tuple[int, str, str], tuple[str, bool]] = {}
    for some in in_pieces(runs.objects.order_by("pk").values_list("pk", "experiment_id", "command", "tags").iterator(AT_ONCE)):
        noted = {each.run_id: each for each in facts.objects.filter(run__in=[row[0] for row in some])}
        made = []
        for run, experiment, command, tags in some:
            about = noted.get(run)
            for name, text in arguments_of(command, about.arguments if about else {}, about.parameters if about else {}).items():
                made.append(values(run_id=run, kind="argument", name=name, text=text, number=number_of(text)))
                first, varies = seen.get((experiment, "argument", name), (text, False))
                seen[experiment, "argument", name] = (first, varies or text != first)
            made += [values(run_id=run, kind="tag", name=tag) for tag in dict.fromkeys(tags)]
        values.objects.bulk_create(made, batch_size=AT_ONCE)
    curves = apps.get_model("experiments", "MetricSeries").objects.order_by().values_list("run__experiment_id", "group", "name")
    for experiment, group, name in curves.filter(run__experiment__isnull=False).distinct().iterator(AT_ONCE):
        seen[experiment, group, name] = ("", False)
    for piece in in_pieces(seen.items()):
        columns.objects.bulk_create(
            columns(experiment_id=experiment, kind=kind, name=name, first=first, varies=varies)
            for (experiment, kind, name), (first, varies) in piece
        )


def extremes_of_old_curves(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """From their stretches, which have the least and the greatest of all their points."""
    series, stretches = apps.get_model("experiments", "MetricSeries"), apps.get_model("experiments", "MetricStretch")
    mine = stretches.objects.filter(series=OuterRef("pk")).order_by()
    least = mine.values("series").annotate(found=Min("least")).values("found")
    greatest = mine.values("series").annotate(found=Max("greatest")).values("found")
    series.objects.update(least=Subquery(least), greatest=Subquery(greatest))
    lowest = mine.filter(least=OuterRef("least")).order_by("index").values("least_step")[:1]
    highest = mine.filter(greatest=OuterRef("greatest")).order_by("index").values("greatest_step")[:1]
    series.objects.update(least_step=Subquery(lowest), greatest_step=Subquery(highest))


class Migration(migrations.Migration):
    dependencies = [("experiments", "0058_receipts")]

    operations = [
        migrations.AddField(
            model_name='metricseries',
            name='greatest',
            field=models.FloatField(null=True),
        ),
        migrations.AddField(
            model_name='metricseries',
            name='greatest_step',
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name='metricseries',
            name='least',
            field=models.FloatField(null=True),
        ),
        migrations.AddField(
            model_name='metricseries',
            name='least_step',
            field=models.BigIntegerField(null=True),
        ),
        migrations.CreateModel(
            name='RunColumn',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('argument', 'Argument'), ('train', 'Train'), ('test', 'Test')], max_length=8)),
                ('name', models.CharField(max_length=200)),
                ('first', models.CharField(blank=True, max_length=500)),
                ('varies', models.BooleanField(default=False)),
                ('experiment', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='columns', to='experiments.experiment')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('experiment', 'kind', 'name'), name='one_column_per_name')],
            },
        ),
        migrations.CreateModel(
            name='RunValue',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('argument', 'Argument'), ('tag', 'Tag')], max_length=8)),
                ('name', models.CharField(max_length=200)),
                ('text', models.CharField(blank=True, max_length=500)),
                ('number', models.FloatField(null=True)),
                ('run', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='experiments.trainingrun')),
            ],
            options={
                'indexes': [models.Index(fields=['kind', 'name', 'number'], name='values_by_number')],
                'constraints': [models.UniqueConstraint(fields=('run', 'kind', 'name'), name='one_value_per_name')],
            },
        ),
        migrations.CreateModel(
            name='SavedView',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=80)),
                ('query', models.CharField(blank=True, max_length=4000)),
                ('saved_at', models.DateTimeField()),
                ('experiment', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='experiments.experiment')),
                ('person', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='saved_views', to='experiments.project')),
                ('saved_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['name', 'id'],
                'constraints': [models.UniqueConstraint(condition=models.Q(('person', None)), fields=('project', 'name'), name='one_shared_view_per_name'), models.UniqueConstraint(condition=models.Q(('person', None), _negated=True), fields=('project', 'person', 'name'), name='one_own_view_per_name')],
            },
        ),
        migrations.RunPython(values_of_old_runs, migrations.RunPython.noop),
        migrations.RunPython(extremes_of_old_curves, migrations.RunPython.noop),
    ]
