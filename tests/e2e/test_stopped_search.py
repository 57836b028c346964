"""A search for hyperparameters that somebody stops while it is followed from a shell."""

from __future__ import annotations

import pytest

from tests.e2e.studio import wait_until
from tests.e2e.test_cli import Shell, shell  # noqa: F401  (a fixture)

pytestmark = [pytest.mark.e2e, pytest.mark.shared_studio, pytest.mark.timeout(600)]


def test_a_search_that_is_stopped_is_followed_until_its_last_run_has_ended(shell: Shell) -> None:  # noqa: F811
    shell.log_in()
    begun = shell.said('edt search . main.py "lr=0.01..0.1" --metric "test loss" --detach --json -- --epochs 100000')
    wait_until(lambda: shell.said("edt ls -n 1 --json")[0]["state"] == "running", lambda: "a trial trains", every_s=0.3)
    assert "stopped: Stopped by alice." in shell.run(f"edt trials {begun['experiment']} --stop --follow", status=130)
    assert all(run["state"] == "stopped" for run in shell.said(f"edt ls --experiment {begun['experiment']} --json"))
