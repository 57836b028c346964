"""What user code finds in its environment, and what it cannot put there."""

from __future__ import annotations

import pytest

from training_runtime import variables
from training_runtime.host.runs.script_environment import Places, folder_name, run_environment, user_environment, warm_environment
from training_runtime.protocol import RunSpec

MODULES = ("/h/fabric/libs/fabric.zip", "/h/helpers")
PLACES = Places("/r/_submitted_code/x", "/r/log/driver", "/r/tmp", "/h/fabric", "/h/fabric/python", MODULES)


def environment(**env: str) -> dict[str, str]:
    spec = RunSpec(7, "x", "alice", ("main.py",), "/c", "/r", "/d", 4, env)
    return run_environment(spec, places=PLACES, warm=warm_environment({"PATH": "/bin", "SECRET_KEY": "x"}, home="/h"))


def test_a_script_finds_the_variables_that_wmla_scripts_expect() -> None:
    found = environment()
    expected = {
        "DATA_DIR": "/d",
        "RESULT_DIR": "/r",
        "LOG_DIR": "/r/log/driver",
        "SAVED_MODEL_DIR": "/r/model",
        "TRAINING_ID": "7",
        "DLI_EXECID": "7",
        "DLI_WORK_DIR": "/r/_submitted_code/x",
        "FABRIC_HOME": "/h/fabric",
        "FABRIC_BACKEND": "pytorch",
        "DLI_IS_ELASTIC": "true",
        "HOME": "/r",
        "TMPDIR": "/r/tmp",
    }
    assert {name: found[name] for name in expected} == expected


def given(**fields) -> dict[str, str]:
    facts = {"run": 7, "name": "x", "user": "alice", "argv": ("main.py",), "code_dir": "/c", "result_dir": "/r", "max_slots": 4}
    spec = RunSpec(**facts | {"data_dir": "/d/mnist/small", "data_root": "/d"} | fields)
    return run_environment(spec, places=PLACES, warm={"CUDA_VISIBLE_DEVICES": "0,1"})


def test_the_data_folder_is_found_below_the_data_file_system_by_its_path() -> None:
    found = given()
    assert (found["DATA_DIR"], found["DATA_PATH"], found["DLI_DATA_FS"]) == ("/d/mnist/small", "/d/mnist/small", "/d")
    assert found["DLI_CS_DATASTORE_META"] == "type=fs,data_path=mnist/small"
    assert given(data_dir="/d")["DLI_CS_DATASTORE_META"] == "type=fs"
    assert {"DLI_SHARED_FS", "DL_NFS_PATH", "DLI_RESULT_FS", "DLI_LOGGER_LEVEL", "EXEC_TYPE"} <= found.keys()
    assert found["RESUME_WEIGHT_PATH"] == ""
    assert given(continue_from="/s")["RESUME_WEIGHT_PATH"] == "/r/checkpoint"


def test_what_logs_to_weights_and_biases_does_so_offline_where_there_is_no_network() -> None:
    assert given()["WANDB_MODE"] == "offline"
    assert "WANDB_MODE" not in given(network=True)
    assert given(env={"WANDB_MODE": "disabled"})["WANDB_MODE"] == "disabled"
    assert given(network=True)["WANDB__TRANSACTION_LOG_FLUSH_INTERVAL"] == "1"


def test_the_users_sub_run_and_log_level_are_passed_on() -> None:
    found = given(env={"SUBID": "3", "DLI_LOGGER_LEVEL": "DEBUG"})
    assert (found["SUBID"], found["DLI_LOGGER_LEVEL"]) == ("3", "DEBUG")
    assert "SUBID" not in given()  # loggers of the original take any value for a sub-run


def test_no_process_sees_a_gpu_before_its_slot_is_known() -> None:
    assert given()["CUDA_VISIBLE_DEVICES"] == ""
    alone = given(elastic=False)
    assert (alone["CUDA_VISIBLE_DEVICES"], alone["DLI_IS_ELASTIC"]) == ("", "false")


@pytest.mark.parametrize(
    "name",
    [
        "LD_PRELOAD",
        "PYTHONPATH",
        "PYTHONSTARTUP",
        "PATH",
        "HOME",
        "EDT_SANDBOX",
        "EDT_ADDRESS",
        "EDT_GPU_UUIDS",
        "EDT_RELEASE_GRACE_S",
        "A.b",
        "A-B",
        "",
        "1A",
        "A=B",
        "A\n",
    ],
)
def test_a_variable_that_could_change_which_code_runs_is_left_out(name: str) -> None:
    assert user_environment({name: "x"}) == {}


def test_the_users_own_variables_are_passed_on_but_do_not_replace_the_studios() -> None:
    found = environment(EDT_PULL_WEIGHT_TIME_OUT="5", MY_FLAG="1", RESULT_DIR="/elsewhere")
    assert (found["EDT_PULL_WEIGHT_TIME_OUT"], found["MY_FLAG"], found["RESULT_DIR"]) == ("5", "1", "/r")


def test_what_is_not_refused_is_passed_on_as_it_was_given() -> None:
    """Whoever gives a variable is told where it would not arrive: the side that asks and the host decide by the same rules."""
    names = [*environment(), "EDT_PULL_WEIGHT_TIME_OUT", "NCCL_DEBUG", "MY_FLAG"]
    taken = [name for name in names if not variables.refusal(name, "mine")]
    assert {"EDT_PULL_WEIGHT_TIME_OUT", "NCCL_DEBUG", "MY_FLAG"} <= set(taken)
    assert {name: environment(**{name: "mine"})[name] for name in taken} == dict.fromkeys(taken, "mine")


def test_the_warm_process_keeps_nothing_that_is_not_on_the_list_and_nothing_that_looks_like_a_secret() -> None:
    own = {"PATH": "/bin", "TZ": "UTC", "CUDA_HOME": "/cuda", "NCCL_DEBUG": "INFO", "EDT_HANG_TIMEOUT": "600"}
    secret = {
        "DATABASE_URL": "x",
        "EDT_SECRET": "x",
        "REDIS_URL": "x",
        "AWS_ACCESS_KEY_ID": "x",
        "CUDA_API_KEY": "x",
        "TORCH_TOKEN": "x",
        "X": "x",
    }
    kept = warm_environment(own | secret, home="/h")
    assert own.items() <= kept.items()
    assert not set(secret) & set(kept)
    assert kept["OMP_NUM_THREADS"] == "1"
    assert (kept["CUDA_DEVICE_ORDER"], kept["PYTORCH_NVML_BASED_CUDA_CHECK"]) == ("PCI_BUS_ID", "1")


@pytest.mark.parametrize(
    ("name", "folder"), [("../../etc", "etc"), ("", "code"), ("a b/c", "a_b_c"), ("..", "code"), ("x" * 300, "x" * 64), ("é", "code")]
)
def test_a_runs_name_becomes_one_safe_folder_name(name: str, folder: str) -> None:
    assert folder_name(name) == folder
