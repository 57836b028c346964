"""Slurm on this machine, with two nodes of its own: everything in a folder, on ports that are free, and gone with it."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e.studio import free_port, wait_until

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "sinfo")
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
needs_slurm = pytest.mark.skipif(
    os.geteuid() != 0 or any(shutil.which(program, path=PATH) is None for program in PROGRAMS),
    reason="Slurm and MUNGE (slurm-wlm and munge of Debian) are not installed, or this is not root",
)
CONFIGURATION = """\
ClusterName=tested
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
KillWait=20
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=1
NodeName=node1 NodeHostname={host} NodeAddr=127.0.0.1 Port={first} CPUs=2 RealMemory=1000
NodeName=node2 NodeHostname={host} NodeAddr=127.0.0.1 Port={second} CPUs=2 RealMemory=1000
PartitionName=work Nodes=node1,node2 Default=YES MaxTime=60 State=UP
"""


@dataclass
class Engine:
    """A running Slurm. `settings`: of a studio that is to use it. `within`: what stands before its commands."""

    within: tuple[str, ...] = ()
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="edt-slurm-")))
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def settings(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": PATH, "EDT_PILOT_FOLDER": str(self.folder / "pilots")}

    def start(self) -> None:
        self.folder.chmod(0o755)
        for name, mode in (("munge", 0o711), ("state", 0o755), ("pilots", 0o755)):
            (self.folder / name).mkdir(mode=mode)
        key = self.folder / "munge" / "key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        ports = {name: free_port() for name in ("controller", "first", "second")}
        text = CONFIGURATION.format(host=socket.gethostname().split(".")[0], folder=self.folder, **ports)
        (self.folder / "slurm.conf").write_text(text)
        munge = self.folder / "munge"
        files = [f"--{name}-file={munge / name}" for name in ("key", "pid", "log", "seed")]
        self._begin("munged", "--foreground", "--force", f"--socket={munge / 'socket'}", "--num-threads=2", *files)
        wait_until((munge / "socket").exists, self.tail, deadline_s=20)
        self._begin("slurmctld", "-D")
        for node in ("node1", "node2"):
            self._begin("slurmd", "-D", "-N", node)
        wait_until(lambda: self.says("sinfo", "--noheader", "--format=%D %t").split() == ["2", "idle"], self.tail, deadline_s=30)

    def _begin(self, *command: str) -> None:
        with open(self.folder / f"{len(self.processes)}-{command[0]}.log", "wb") as output:
            environment = {**os.environ, **self.settings}
            self.processes.append(
                subprocess.Popen(
                    [*self.within, *command],
                    env=environment,
                    stdout=output,
                    stderr=output,
                    stdin=subprocess.DEVNULL,
                    cwd=self.folder,
                    start_new_session=True,
                )
            )

    def says(self, *command: str) -> str:
        """What a command of Slurm answers; nothing where it cannot yet."""
        environment = {**os.environ, **self.settings}
        done = subprocess.run([*self.within, *command], env=environment, capture_output=True, text=True, timeout=30)
        return done.stdout

    def jobs(self) -> list[str]:
        """Those that are in the queue or at work, by number."""
        return self.says("squeue", "--noheader", "--format=%i").split()

    def tail(self) -> str:
        logs = [*self.folder.glob("*.log"), *self.folder.glob("pilots/*.log"), *self.folder.glob("pilots/*/home/host.log")]
        return "\n".join(f"{path.name}: " + "\n".join(path.read_text(errors="replace").splitlines()[-15:]) for path in sorted(logs))

    def close(self) -> None:
        """Slurm's jobs first, then its daemons, then the rest of either."""
        with contextlib.suppress(subprocess.SubprocessError, OSError):
            self.says("scancel", "--signal=KILL", "--full", *self.jobs()) if self.jobs() else ""
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait(10)
        kill_all_of(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)


def kill_all_of(folder: Path) -> None:
    """What has the folder on its command line, in its environment or as its own: steps of jobs, and machines that have joined from them."""
    import psutil

    for _ in range(3):
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):  # the path of a working folder may be too long to be read
                told = [*process.cmdline(), *process.environ().values(), process.cwd()]
                if process.pid != os.getpid() and any(str(folder) in word for word in told):
                    process.kill()


@contextlib.contextmanager
def slurm(within: tuple[str, ...] = ()) -> Iterator[Engine]:
    engine = Engine(within)
    try:
        engine.start()
        yield engine
    finally:
        engine.close()
