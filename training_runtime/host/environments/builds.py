"""The environments of this machine: which are built, which are being built, and who must not lose theirs. Part of the host's one thread:
builds are processes of their own (`builder`), of which some run at a time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from training_runtime.environments import network
from training_runtime.environments.folders import folder_name
from training_runtime.errors import ProtocolError, SandboxRefused
from training_runtime.host import processes
from training_runtime.host.environments.build_spec import FACTS, WORK, BuildSpec, Result
from training_runtime.host.node import Node
from training_runtime.host.sandbox import levels
from training_runtime.host.sandbox.levels import Abilities
from training_runtime.host.settings import Settings
from training_runtime.protocol import EnvironmentSeen, WantedEnvironment
from training_runtime.records import build

log = logging.getLogger(__name__)
AT_ONCE = 2
_NAME = re.compile(r"[0-9a-f]{40}")
_DROPPED = ".dropped-"
_REPOSITORY = Path(__file__).resolve().parents[3]


@dataclass(eq=False)
class _Build:
    """What is known of a wanted environment. `process`: of its builder while there is one; `said`: what that has written so far."""

    wish: WantedEnvironment
    seen: EnvironmentSeen
    process: subprocess.Popen[bytes] | None = None
    said: bytes = b""


class Environments:
    """`own`: the host's environment, which knows how this machine reaches packages; `base`: the key of what environments stand on."""

    def __init__(self, settings: Settings, *, node: Node, abilities: Abilities, own: Mapping[str, str], base: str) -> None:
        self._settings, self._node, self._abilities, self._own = settings, node, abilities, dict(own)
        self.store = settings.folder / "environments"
        self._base = base
        self._builds: dict[str, _Build] = {}

    def begin(self) -> None:
        """Once, at the host's start: what an earlier one was building is of no use."""
        for folder in (self.store, self.store / WORK):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o711)
        for path in (*(self.store / WORK).iterdir(), *self.store.glob(f"{_DROPPED}*")):
            if path.name != "uv":
                self._remove(path)
        for path in (self.store / WORK / "uv").glob("*-*"):  # the cache beside them stays
            self._remove(path)

    def path(self, folder: str) -> Path | None:
        """Of a built environment; None where it is not there."""
        path = self.store / folder
        return path if _NAME.fullmatch(folder) and (path / FACTS).is_file() else None

    def folders(self) -> tuple[str, ...]:
        with contextlib.suppress(OSError):
            return tuple(sorted(entry.name for entry in os.scandir(self.store) if self.path(entry.name)))
        return ()

    def seen(self) -> tuple[EnvironmentSeen, ...]:
        return tuple(
            dataclasses.replace(each.seen, lock="", log="") if each.wish.known else each.seen for _, each in sorted(self._builds.items())
        )

    # --- wishes
    # -----------------------------------------------------------------------------------------------------------------------------

    def apply(self, wishes: Collection[WantedEnvironment], drop: Collection[str]) -> None:
        """Make what is built here equal to what is wanted. Nobody's is deleted while it is used, whoever asks for it."""
        wanted = {wish.key: wish for wish in wishes}
        for key in self._builds.keys() - wanted.keys():
            self._cancel(self._builds.pop(key))
        for key, wish in wanted.items():
            known = self._builds.get(key)
            if known is None:
                self._builds[key] = _Build(wish, EnvironmentSeen(key, wish.attempt, "wanted"))
            else:
                known.wish = wish
                again = known.seen.state in ("failed", "ready") and wish.attempt > known.seen.attempt
                if again or (known.seen.state == "ready" and self.path(known.seen.folder) is None):
                    known.seen = EnvironmentSeen(key, wish.attempt, "wanted")
        for folder in drop:
            self._drop(folder)
        self.go_on()

    def go_on(self) -> None:
        """Begin as many builds as may run at once; what is there already needs none."""
        for each in self._builds.values():
            if each.seen.state == "wanted" and each.wish.lock and (path := self._built(each.wish.lock)) is not None:
                self._settle(each, Result(folder=path.name, lock=each.wish.lock, size_bytes=_size_of(path)))
        running = sum(each.process is not None for each in self._builds.values())
        for each in [each for each in self._builds.values() if each.seen.state == "wanted"][: max(0, AT_ONCE - running)]:
            self._start(each)

    def _drop(self, folder: str) -> None:
        path = self.path(folder)
        if path is None:
            return
        # The studio says so under the lock under which it plans runs. A run that was planned before, of which it has not told us yet, finds
        # the folder gone and waits until it is built again (see `path`); one that is here keeps it.
        used = {run.spec.environment for run in self._node.runs.values() if run.spec is not None and run.phase != "ended"}
        if folder in used or any(each.seen.folder == folder for each in self._builds.values()):
            log.warning("an environment is in use and is not deleted: %s", folder)
            return
        away = self.store / f"{_DROPPED}{folder}"
        path.rename(away)
        self._remove(away)
        self._node.changed = True
        log.info("an environment is deleted: %s", folder)

    def _remove(self, path: Path) -> None:
        """In a process of its own: it may have a hundred thousand files. The host reaps it with its other children."""
        process = subprocess.Popen(["rm", "-rf", "--one-file-system", str(path)], stdin=subprocess.DEVNULL, start_new_session=True)
        process.returncode = 0
        self._node.helpers.add(process.pid)

    # --- builds
    # -----------------------------------------------------------------------------------------------------------------------------

    def _built(self, lock: str) -> Path | None:
        return self.path(folder_name(lock, self._base, prefix=sys.prefix))

    def _start(self, each: _Build) -> None:
        each.seen = EnvironmentSeen(each.wish.key, each.wish.attempt, "building", detail="starting")
        self._node.changed = True
        try:
            spec = self._spec_of(each.wish)
            self._node.groups.make(_group(each))
            process = subprocess.Popen(
                [sys.executable, "-m", "training_runtime.host.environments.builder"],
                cwd=_REPOSITORY,
                env={"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            assert process.stdin is not None
            assert process.stdout is not None
            each.process, each.said = process, b""
            self._node.helpers.add(process.pid)
            self._node.groups.put(_group(each), process.pid)  # it waits for its arguments and has started nothing yet
            process.stdin.write(json.dumps(dataclasses.asdict(spec)).encode() + b"\n")
            process.stdin.flush()
        except (OSError, SandboxRefused) as error:
            self._close(each)  # a builder that ended before it was told what to build is none of those at work
            self._settle(each, Result(problem=f"The environment cannot be built on {self._settings.node}: {error}"))
            return
        log.info("an environment is being built key=%s pid=%d", each.wish.key[:12], process.pid)
        os.set_blocking(process.stdout.fileno(), False)
        self._node.watch(process.stdout, functools.partial(self._on_output, each))

    def _spec_of(self, wish: WantedEnvironment) -> BuildSpec:
        settings, own = self._settings.building, network.settings(self._own, prefix=sys.prefix)
        uv = Path(sys.prefix, "bin", "uv")
        if not uv.is_file():
            raise SandboxRefused("uv is not installed beside the studio: an administrator runs make up (or pip install uv) there")
        read, why_not = network.folders(own), ""
        trusted, strange = self.store / WORK / "uv", None
        trusted.mkdir(exist_ok=True)
        make = functools.partial(levels.box_for_building, abilities=self._abilities, policy=self._settings.policy, read=read)
        if settings.sources:
            folder = self.store / WORK / f"run-{wish.run}-{wish.key[:16]}"
            if folder.exists():  # of a builder that was killed
                shutil.rmtree(folder)
            folder.mkdir()
            try:
                strange = make(str(folder), run=wish.run)
            except SandboxRefused as refused:
                why_not = str(refused)
        return BuildSpec(
            key=wish.key,
            requirements=wish.requirements,
            lock=wish.lock,
            prefer=wish.prefer,
            node=self._settings.node,
            store=str(self.store),
            uv=str(uv),
            trusted=make(str(trusted)),
            strange=strange,
            network=own,
            isolated=self._settings.policy.network == "required",
            why_not=why_not,
            limit_s=settings.limit_s,
            limit_bytes=settings.limit_bytes,
            free_bytes=self._settings.marks.low,
        )

    def _on_output(self, each: _Build, _mask: int) -> None:
        process = each.process
        if process is None or process.stdout is None:
            return
        try:
            piece = os.read(process.stdout.fileno(), 1 << 20)
        except BlockingIOError:
            return
        each.said += piece
        *lines, each.said = each.said.split(b"\n")
        for line in lines:
            raw = json.loads(line)
            if "detail" in raw:
                each.seen = dataclasses.replace(each.seen, detail=str(raw["detail"]))
                self._node.changed = True
            else:
                try:
                    result = build(Result, raw)
                except ProtocolError as error:
                    result = Result(problem=f"Its builder said something odd: {error}")
                self._close(each)
                self._settle(each, result)
                self.go_on()
                return
        if not piece:
            self._close(each)
            self._clear_up(each.wish.key)
            self._settle(
                each, Result(problem=f"Its builder on {self._settings.node} was killed, perhaps for want of memory: run it again.")
            )
            self.go_on()

    def _clear_up(self, key: str) -> None:
        """After a builder that was killed, which clears up itself otherwise: what it had started, and its folders. uv itself ends with it;
        what builds a package may not, and is known by the folder of the build in its environment."""
        mark = f"/{key[:16]}-".encode()
        for process in processes.table().values():
            if mark in processes.environment(process.pid):
                processes.send_signal(process, signal.SIGKILL)
        work = self.store / WORK
        for folder in (*work.glob(f"*/{key[:16]}-*"), *work.glob(f"run-*-{key[:16]}")):
            self._remove(folder)

    def _settle(self, each: _Build, result: Result) -> None:
        state = "failed" if result.problem else "ready"
        each.seen = EnvironmentSeen(key=each.wish.key, attempt=each.wish.attempt, state=state, **dataclasses.asdict(result))  # type: ignore[arg-type]
        self._node.changed = True
        log.info("an environment is %s key=%s: %s", state, each.wish.key[:12], result.problem or result.folder)

    def _cancel(self, each: _Build) -> None:
        """Nobody wants it any more: the builder ends, with all that it has started, when its input is closed."""
        if each.process is not None:
            log.info("a build is cancelled, nobody waits for it key=%s", each.wish.key[:12])
            self._close(each)
        self._node.changed = True

    def groups(self) -> dict[str, int]:
        """The control groups of builds at work; each has the processors of a slot."""
        return {_group(each): 1 for each in self._builds.values() if each.process is not None}

    def _close(self, each: _Build) -> None:
        process, each.process = each.process, None
        if process is None:
            return
        if process.stdout is not None:
            self._node.unwatch(process.stdout)
            process.stdout.close()
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        process.returncode = 0  # the host reaps all children itself

    def end(self) -> None:
        for each in self._builds.values():
            self._close(each)


def _group(each: _Build) -> str:
    """The name of its control group: code of packages may take no more of the machine than a run."""
    return f"build-{each.wish.key[:16]}"


def _size_of(path: Path) -> int:
    with contextlib.suppress(OSError, ValueError, KeyError):
        return int(json.loads((path / FACTS).read_bytes())["size_bytes"])
    return 0
