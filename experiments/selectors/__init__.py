"""Reads for pages, a module for each kind of page: tables of runs, the timeline, curves, files. Nothing here writes or checks rights."""

from experiments.selectors.arriving import Arriving, arriving
from experiments.selectors.curves import Curve, NewPoints, points_after, series
from experiments.selectors.experiment_runs import (
    ExperimentTables,
    RunFilter,
    RunRow,
    RunTable,
    experiment_tables,
    metric_names,
    recent_metric_names,
)
from experiments.selectors.files import LogTail, RunFile, files, listed, log_names, log_places, log_tail, open_file, pictures
from experiments.selectors.jobs import JobFilter, JobRow, generations, jobs, last_metrics, run_slots, runs_with_tag, slots_of
from experiments.selectors.timeline import Bar, FeedItem, Lane, feed, lanes

__all__ = [
    "Arriving",
    "Bar",
    "Curve",
    "ExperimentTables",
    "FeedItem",
    "JobFilter",
    "JobRow",
    "Lane",
    "LogTail",
    "NewPoints",
    "RunFile",
    "RunFilter",
    "RunRow",
    "RunTable",
    "arriving",
    "experiment_tables",
    "feed",
    "files",
    "generations",
    "jobs",
    "lanes",
    "last_metrics",
    "listed",
    "log_names",
    "log_places",
    "log_tail",
    "metric_names",
    "open_file",
    "pictures",
    "points_after",
    "recent_metric_names",
    "run_slots",
    "runs_with_tag",
    "series",
    "slots_of",
]
