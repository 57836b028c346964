"""In a run's arguments its folders may stand by their names: a script that takes a path is told where its data is."""

from __future__ import annotations

import pytest

from training_runtime.elastic.processes.arguments import with_folders

PLACES = {"DATA_DIR": "/data/3", "RESULT_DIR": "/runs/7", "LOG_DIR": "", "HF_TOKEN": "secret"}


@pytest.mark.parametrize(
    ("said", "is_given"),
    [
        ("$DATA_DIR", "/data/3"),
        ("--data=$DATA_DIR/train", "--data=/data/3/train"),
        ("${DATA_DIR}_2:${RESULT_DIR}", "/data/3_2:/runs/7"),
        ("$DATA_DIRECTORY", "$DATA_DIRECTORY"),
        ("$LOG_DIR", "$LOG_DIR"),
        ("$HF_TOKEN", "$HF_TOKEN"),
        ("DATA_DIR", "DATA_DIR"),
        ("$", "$"),
    ],
)
def test_a_folder_of_the_run_stands_by_its_name_and_nothing_else_does(said, is_given):
    assert with_folders([said], PLACES) == [is_given]


def test_a_script_that_takes_a_path_is_given_it(start):
    run = start("import os, sys\nassert sys.argv[1:] == [os.environ['RESULT_DIR'] + '/out', 'x'], sys.argv\n", "$RESULT_DIR/out", "x")
    assert run.wait() == 0, run.tail()
