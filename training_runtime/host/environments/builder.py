"""Builds one environment: `python -m training_runtime.host.environments.builder`, a child of the node host. Its arguments come on its
standard input, one line of JSON; its standard output says how far it is and, last, what came of it.

It runs nothing of a stranger's itself: each step is a boxed child without privileges. While uv takes wheels only, no code of a package is
run, and all builds share a cache. Where something has no wheel it is built from source, which runs code of whoever made the package: that
happens in a box and a cache of its own, so nothing that it writes is ever used by another environment.

What is built lies under a name of its own until it is whole, and is renamed then. After each step every process that it left is killed.
When the host closes the input (it has died, or nobody wants the environment any more) this program ends at once, and kills what it has
started."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import shutil
import signal
import stat
import sys
import time
import uuid
from pathlib import Path

from training_runtime.environments import base as bases
from training_runtime.environments import problems, requirements
from training_runtime.environments.base import Base
from training_runtime.environments.folders import folder_name
from training_runtime.errors import SandboxRefused
from training_runtime.host import processes
from training_runtime.host.environments import built_files
from training_runtime.host.environments.build_network import connected
from training_runtime.host.environments.build_spec import FACTS, BuildSpec, Result
from training_runtime.host.environments.step_errors import Failed, Older, Step
from training_runtime.host.sandbox import enter, kernel
from training_runtime.host.sandbox.levels import Box
from training_runtime.records import build

MOST_LOG_BYTES, MOST_LOCK_BYTES = 64 << 10, 4 << 20
_LOOK_S = 1.0


def main() -> int:
    spec = connected(build(BuildSpec, json.loads(sys.stdin.buffer.readline())))
    kernel.become_subreaper()  # what a step leaves behind becomes this program's child
    os.umask(0o022)
    began = time.monotonic()
    work = _Work(spec, bases.of_this_machine(), deadline=began + spec.limit_s)
    try:
        result = work.make()
    except (Failed, SandboxRefused) as failure:
        result = Result(problem=str(failure), lock="")
    except OSError as error:
        result = Result(problem=f"The environment could not be built on {spec.node}: {error}")
    finally:
        _kill_all()
        work.clear()
    _say(dataclasses.asdict(dataclasses.replace(result, log=work.log(), seconds=time.monotonic() - began)))
    return 0


def _say(words: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


class _Work:
    """One build. Everything that a box may write to lies in `self.at`, which nothing of value is in."""

    def __init__(self, spec: BuildSpec, base: Base, *, deadline: float) -> None:
        self.spec, self.base, self.deadline = spec, base, deadline
        self.lines = requirements.from_text(spec.requirements)
        self.box = spec.trusted
        self.at = Path()
        self._made: list[Path] = []
        self._log = bytearray()

    def make(self) -> Result:
        if problem := bases.contradiction(self.lines, self.base):
            raise Failed(problem)
        self._bound_cache()
        older = ""
        try:
            return self._attempt(self.spec.trusted, sources=False)
        except Older as found:
            older = found.lock
            self._note(f"With wheels alone {found} would be older than need be.\n")
        except Step as failure:
            if self.spec.strange is None or not problems.needs_source(str(failure)):
                why_not = self.spec.why_not if problems.needs_source(str(failure)) else ""
                raise Failed(self._explained(failure) + (f" ({why_not})" if why_not else "")) from None
        assert self.spec.strange is not None, "code of packages is run in no other box"
        self._note("Something has no wheel: it is built from source, with a cache of its own.\n")
        try:
            return self._attempt(self.spec.strange, sources=True, unless=older)
        except Step as failure:
            if not older:
                raise Failed(self._explained(failure)) from None
        self._note("It cannot be: the older version is taken.\n")
        try:
            return self._attempt(self.spec.trusted, sources=False, lock=older)
        except Step as failure:
            raise Failed(self._explained(failure)) from None

    def _explained(self, failure: Step) -> str:
        return problems.explain(str(failure), self.lines, base=self.base.words, node=self.spec.node)

    def _attempt(self, box: Box, *, sources: bool, lock: str = "", unless: str = "") -> Result:
        """`unless`: a lock that is as new all the same. Raises Step then."""
        self.box = box
        self.at = self._folder(box, lock or self.spec.lock or self.spec.prefer)
        lock = lock or self.spec.lock or self._resolve(sources=sources)
        if unless and not bases.older(unless, than=lock):
            raise Step("nothing newer")
        name = folder_name(lock, self.base.key, prefix=sys.prefix)
        target = Path(self.spec.store, name)
        if not (target / FACTS).is_file():
            self._install(lock, sources=sources)
            self._finish(target, lock)
        facts = json.loads((target / FACTS).read_bytes())
        return Result(folder=name, lock=lock, size_bytes=int(facts["size_bytes"]))

    def _bound_cache(self) -> None:
        """The shared cache is emptied when it is larger than an environment may be. Not while another build may be using it; one that
        begins at this very moment fails at worst, and is tried again by the next run."""
        shared = Path(self.spec.trusted.write)
        if not list(shared.glob("*-*")) and built_files.size(shared / "cache") > self.spec.limit_bytes:
            shutil.rmtree(shared / "cache", ignore_errors=True)

    def _folder(self, box: Box, known: str) -> Path:
        """With what uv reads in it, and the lock that is known; it belongs to the box's user, so from here on nothing in it is believed."""
        at = Path(box.write, f"{self.spec.key[:16]}-{uuid.uuid4().hex[:8]}")
        at.mkdir()
        self._made.append(at)
        for name in ("home", "tmp"):
            (at / name).mkdir()
        wanted = [line.text for line in self.lines if line.name]
        (at / "requirements.txt").write_text("".join(f"{text}\n" for text in wanted))
        (at / "constraints.txt").write_text(self.base.constraints())
        if known:  # uv prefers the versions that its output file names already
            (at / "lock.txt").write_text(known)
        bases.write_stubs(self.base, at / "base")
        if box.uid is not None:
            built_files.give(at, box.uid)
        return at

    def _options(self, *, sources: bool) -> list[str]:
        found = [word for line in self.lines if not line.name for word in line.text.split(None, 1)]
        return [*found, "--no-config", *([] if sources else ["--no-build"])]

    def _resolve(self, *, sources: bool) -> str:
        """The lock. Raises Older where sources may make a newer one: for want of a wheel the solver goes back without a word, by years."""
        _say({"detail": "resolving what it requires"})
        self._compile("lock.txt", sources=sources)
        lock = self._read("lock.txt", MOST_LOCK_BYTES)
        if not sources and self.spec.strange is not None and not self.spec.prefer:
            self._compile("newest.txt", "--no-deps", sources=False)
            if names := bases.older(lock, than=self._read("newest.txt", MOST_LOCK_BYTES)):
                raise Older(lock, ", ".join(names))
        return lock

    def _compile(self, to: str, *more: str, sources: bool) -> None:
        fixed = [word for name, _ in self.base.fixed for word in ("--no-emit-package", name)]
        hashes = [] if any(" @ " in line.text for line in self.lines) else ["--generate-hashes"]
        self._uv(
            *("pip", "compile", "requirements.txt", "--constraint", "constraints.txt", "--find-links", "base", "--python", sys.executable),
            *(*fixed, *hashes, *self._options(sources=sources), "--no-header", "--no-annotate", "--quiet", "--output-file", to, *more),
        )

    def _install(self, lock: str, *, sources: bool) -> None:
        packages = bases.packages(lock)
        _say({"detail": f"installing {len(packages)} package{'s' * (len(packages) != 1)}"})
        self._uv("venv", "--relocatable", "--no-project", "--no-config", "--python", sys.executable, "env")
        self._run(
            sys.executable, "-I", "-S", "-c", _LAYER, *(path for path in sys.path if path.endswith(("site-packages", "dist-packages")))
        )
        if packages:
            hashes = ["--require-hashes"] if "--hash=" in lock else []
            links = ["--find-links", "base"] if sources else []  # what a build needs of the base
            self._uv(
                *("pip", "install", "--python", "env/bin/python", "--no-deps", *hashes, "--requirement", "lock.txt", "--compile-bytecode"),
                *(*links, *self._options(sources=sources)),
            )

    def _finish(self, target: Path, lock: str) -> None:
        """No process of the build is left: it becomes the host's, which nobody else may write to, and gets its name."""
        made = self.at / "env"
        if made.is_symlink() or not made.is_dir():
            raise Failed("The environment could not be built: its folder was replaced while it was.")
        # Only uv has been at work as the trusted box's user, and links to its cache stay its own: nobody else could link to them otherwise.
        size_bytes = built_files.make_read_only(made, chown=self.box is not self.spec.trusted)
        facts = {"size_bytes": size_bytes, "requirements": self.spec.requirements, "lock": lock, "base": self.base.words}
        fd = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(FACTS, dir_fd=fd)
            with open(os.open(FACTS, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=fd), "w") as file:
                file.write(json.dumps(facts))
                file.flush()
                os.fsync(file.fileno())
        finally:
            os.close(fd)
        # Two builds of the same lock may come here at once: what they made is the same, and whoever is first stays.
        with contextlib.suppress(OSError):
            made.rename(target)
        if not (target / FACTS).is_file():
            raise Failed(f"The environment could not be put into its place ({target}).")

    # --- running
    # ----------------------------------------------------------------------------------------------------------------------------

    def _uv(self, *words: str) -> None:
        self._run(self.spec.uv, *words)

    def _run(self, *command: str) -> None:
        """A boxed child, until it has ended and so have all that it started. Raises Step where it fails."""
        shown = " ".join(os.path.basename(word) if number == 0 else word for number, word in enumerate(command) if "\n" not in word)  # noqa: PTH119
        self._note(f"$ {shown}\n")
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            self._become(command, writer)
        os.close(writer)
        before = len(self._log)
        try:
            self._follow(reader)
            _, status = os.waitpid(child, 0)
            self._check_room()
        finally:
            os.close(reader)
            _kill_all()
        if status:
            raise Step(self._log[before:].decode(errors="replace"))

    def _become(self, command: tuple[str, ...], output: int) -> None:
        """In the child. Never returns."""
        try:
            os.setsid()
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))
            enter.enter(self.box)
            kernel.die_with_the_parent()
            os.chdir(self.at)
            os.execve(command[0], command, self._environment())  # noqa: S606
        except BaseException as error:
            os.write(2, f"error: {error}\n".encode())
        finally:
            os._exit(127)

    def _environment(self) -> dict[str, str]:
        own = {
            "HOME": str(self.at / "home"),
            "TMPDIR": str(self.at / "tmp"),
            "UV_CACHE_DIR": str(Path(self.box.write, "cache")),
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_NO_PROGRESS": "1",
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
            "PYTHONNOUSERSITE": "1",
        }
        return self.spec.network | own

    def _follow(self, reader: int) -> None:
        """Takes in what is said until everybody has closed the pipe or the child that counts has ended; looks at limits meanwhile."""
        looked_at = 0.0
        while True:
            ready, _, _ = select.select([reader, 0], [], [], _LOOK_S)
            if 0 in ready and not os.read(0, 4096):
                _kill_all()
                self.clear()
                os._exit(1)  # nobody waits for the result
            if reader in ready:
                piece = os.read(reader, 1 << 16)
                if not piece:
                    return
                self._note(piece.decode(errors="replace"))
            now = time.monotonic()
            if now > self.deadline:
                raise Failed(f"The environment was not built within {self.spec.limit_s:g} s: name fewer packages, or ask an administrator.")
            if now >= looked_at + _LOOK_S:
                looked_at = now
                self._check_room()

    def _check_room(self) -> None:
        limit = self.spec.limit_bytes
        if built_files.size(self.at) > limit:
            raise Failed(f"The environment is larger than {limit / 1e6:,.0f} MB, the most that is allowed: name fewer packages.")
        if shutil.disk_usage(self.spec.store).free < self.spec.free_bytes:
            raise Failed(f"There is no room left on the disk of {self.spec.node}: an administrator deletes unused environments or results.")

    def _note(self, text: str) -> None:
        self._log += text.encode(errors="replace")
        if len(self._log) > 2 * MOST_LOG_BYTES:  # its beginning and its end
            half = MOST_LOG_BYTES // 2
            self._log[half:-half] = b"\n[...]\n"

    def log(self) -> str:
        text = problems.clean(self._log.decode(errors="replace"))
        half = MOST_LOG_BYTES // 2
        return text if len(text) <= MOST_LOG_BYTES else f"{text[:half]}\n[...]\n{text[-half:]}"

    def _read(self, name: str, most: int) -> str:
        """A file that a box has written: a plain one, of a size that can be."""
        fd = os.open(self.at / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise Failed(f"{name} is not a plain file any more.")
            content = file.read(most + 1)
        if len(content) > most:
            raise Failed("What it requires comes to too many packages: name fewer.")
        return content.decode(errors="replace")

    def clear(self) -> None:
        for folder in (*self._made, *([Path(self.spec.strange.write)] if self.spec.strange else ())):
            shutil.rmtree(folder, ignore_errors=True)


# In the box, in the new environment's folder: behind its own packages come those of the base, with what their .pth files do.
_LAYER = """
import pathlib, sys
(folder,) = pathlib.Path("env/lib").glob("python3*/site-packages")
lines = "".join(f"import site; site.addsitedir({path!r})\\n" for path in sys.argv[1:])
(folder / "zz_edt_base.pth").write_text(lines)
"""


def _kill_all() -> None:
    """Every process that this one has started, however far down."""
    end = time.monotonic() + 10.0
    while time.monotonic() < end:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        found = processes.table()
        left = [found[pid] for pid in processes.descendants({os.getpid()}, found) if found[pid].state not in "ZX"]
        if not left:
            return
        for process in left:
            processes.send_signal(process, signal.SIGKILL)
        time.sleep(0.01)


if __name__ == "__main__":
    sys.exit(main())
