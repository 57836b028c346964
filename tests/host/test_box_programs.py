"""The ordinary things that training does go on working behind the filter of system calls."""

from __future__ import annotations

import shutil

import pytest

from tests.host.box import BOTH_LEVELS, needs_box, try_in_the_box
from tests.host.conftest import HostUnderTest

USERS = BOTH_LEVELS  # each promise is kept at both levels


@needs_box
def test_threads_processes_sockets_and_shared_memory_work_in_the_box(host: HostUnderTest) -> None:
    findings = try_in_the_box(
        host,
        """
import asyncio, concurrent.futures, multiprocessing, socket, sqlite3, subprocess, tempfile, threading
from multiprocessing import shared_memory
def threads():
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        return sum(pool.map(lambda n: n * n, range(100)))
def pool():
    with multiprocessing.get_context("fork").Pool(3) as workers:
        return sum(workers.map(abs, range(-50, 0)))
def shared():
    block = shared_memory.SharedMemory(create=True, size=1 << 20)
    pid = os.fork()
    if pid == 0:
        block.buf[7] = 42
        os._exit(0)
    os.waitpid(pid, 0)
    found = block.buf[7]
    block.close()
    block.unlink()
    return found
def speaks(family, address):
    with socket.socket(family) as listener, socket.socket(family) as caller:
        listener.bind(address)
        listener.listen()
        caller.connect(listener.getsockname())
        other, _ = listener.accept()
        with other:
            other.sendall(b"hello")
            return caller.recv(5)
def database():
    with sqlite3.connect("numbers.sqlite3") as db:
        db.execute("pragma journal_mode=wal")
        db.execute("create table n(i)")
        db.executemany("insert into n values (?)", [(i,) for i in range(10)])
        return db.execute("select sum(i) from n").fetchone()[0]
async def child():
    process = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
    return (await process.communicate(b"through"))[0]
for name, action, expected in (
    ("threads", threads, 328350), ("pool", pool, 1275), ("shared memory", shared, 42),
    ("tcp", lambda: speaks(socket.AF_INET, ("127.0.0.1", 0)), b"hello"),
    ("unix", lambda: speaks(socket.AF_UNIX, os.path.join(tempfile.mkdtemp(), "s")), b"hello"),
    ("udp", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", 9)), 1),
    ("netlink", lambda: bool(socket.if_nameindex()), True),
    ("sqlite", database, 45), ("asyncio", lambda: asyncio.run(child()), b"through"),
    ("shell", lambda: subprocess.run("echo a | tr a b", shell=True, capture_output=True).stdout, b"b\\n"),
    ("memfd and pidfd", lambda: (os.close(os.memfd_create("x")), os.close(os.pidfd_open(os.getpid())), "both")[2], "both"),
):
    findings[name] = [*attempt(action), repr(expected)]
""",
    )
    assert {name: finding for name, finding in findings.items() if finding[:2] != ["done", finding[2]]} == {}


@needs_box
def test_torch_with_its_loaders_and_processes_works_in_the_box(host: HostUnderTest) -> None:
    findings = try_in_the_box(
        host,
        """
import torch, torch.distributed as dist, torch.multiprocessing as mp
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
def loader():
    found = DataLoader(TensorDataset(torch.arange(64.0)), batch_size=8, num_workers=2)
    return sum(batch.sum().item() for (batch,) in found)
def sends(queue):
    queue.put(torch.ones(3))
    queue.get()
def processes():
    context = mp.get_context("fork")
    queue, child = context.SimpleQueue(), None
    child = context.Process(target=lambda: queue.put(torch.ones(3).tolist()))
    child.start()
    found = sum(queue.get())
    child.join()
    return found
def member(rank, store):
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
    found = torch.tensor([rank + 1.0])
    dist.all_reduce(found)
    dist.destroy_process_group()
    return found.item()
def group():
    store = os.path.join(os.environ["RESULT_DIR"], "store")
    child = os.fork()
    if child == 0:
        os._exit(0 if member(1, store) == 3.0 else 1)
    found = member(0, store)
    return found + os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
findings["loader"] = attempt(loader)
findings["processes"] = attempt(processes)
findings["group"] = attempt(group)
""",
    )
    assert findings == {"loader": ["done", "2016.0"], "processes": ["done", "3.0"], "group": ["done", "3.0"]}


@needs_box
@pytest.mark.skipif(shutil.which("tail") is None or shutil.which("git") is None, reason="coreutils and git are not installed")
def test_programs_that_would_use_a_refused_call_go_another_way(host: HostUnderTest) -> None:
    """tail -f watches by inotify where there is one; git starts threads and children."""
    findings = try_in_the_box(
        host,
        """
import subprocess, tempfile
Path("lines").write_text("first\\n")
def followed():
    with subprocess.Popen(["tail", "-s", "0.02", "-f", "lines"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as tail:
        lines = [tail.stdout.readline()]
        with open("lines", "a") as file:
            file.write("second\\n")
        lines.append(tail.stdout.readline())
        tail.kill()
        return lines
def committed():  # where every folder above is open: git asks by access(2), which no capability answers
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        Path(folder, "lines").write_text("first")
        def git(*words):
            command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
            return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
        for words in (["init", "-q"], ["add", "lines"], ["commit", "-q", "-m", "x"], ["gc", "-q"]):
            git(*words)
        return git("rev-list", "--count", "HEAD")
findings["tail"] = attempt(followed)
findings["git"] = attempt(committed)
""",
        env={"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"},
    )
    assert findings == {"tail": ["done", repr(["first\n", "second\n"])], "git": ["done", repr("1\n")]}


@needs_box
def test_python_and_torchrun_are_those_of_the_script(host: HostUnderTest) -> None:
    """As in a shell where its environment is activated."""
    findings = try_in_the_box(
        host,
        """
import subprocess, sys
def said(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
with open("worker.py", "w") as file:
    file.write("import os; os.write(1, (os.environ['RANK'] + ' ').encode())")  # in one piece: they share the pipe
for name, action, expected in (
    ("python", lambda: said("python", "-c", "import torch, sys; print(sys.prefix)"), [sys.prefix]),
    ("python3", lambda: said("python3", "-c", "import torch, sys; print(sys.prefix)"), [sys.prefix]),
    ("torchrun", lambda: sorted(said("torchrun", "--nproc-per-node=2", "worker.py")), ["0", "1"]),
):
    findings[name] = [*attempt(action), repr(expected)]
""",
    )
    assert {name: finding for name, finding in findings.items() if finding[:2] != ["done", finding[2]]} == {}
