"""A notebook that a real kernel executes, a cell at a time, as Jupyter would: cells go in, outputs come out, interrupts can be sent."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import nbformat
import psutil
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError

DEADLINE_S = 150.0
Cell = Any  # nbformat's, a dictionary with attributes


class Notebook:
    """Its kernel runs in `folder`, with a home of its own and `environment`. `close` leaves no process."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self._sockets = Path(tempfile.mkdtemp(prefix="nb-"))  # a short path: sockets need one
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("EDT_", "RESULT_DIR", "LOG_DIR", "DATA_DIR", "XDG_", "JPY_"))}
        home = {"HOME": str(folder), "IPYTHONDIR": str(self._sockets), "TMPDIR": str(self._sockets), "PYTHONHASHSEED": "random"}
        self._loop = asyncio.new_event_loop()  # in a thread of its own: a browser's may run in this one
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        manager = AsyncKernelManager(kernel_name="python3", transport="ipc", connection_file=str(self._sockets / "kernel.json"))
        self.client = NotebookClient(nbformat.v4.new_notebook(), km=manager, timeout=int(DEADLINE_S))
        try:
            self._do(self.client.async_start_new_kernel(cwd=str(folder), env={**keep, **home, "EDT_SLOTS": "2", **environment}))
            self._do(self.client.async_start_new_kernel_client())
            self.kernel = psutil.Process(manager.provisioner.pid)  # type: ignore[union-attr]
        except BaseException:
            self._do(self.client._async_cleanup_kernel())
            raise

    def _do(self, what: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result()

    def run(self, source: str) -> Cell:
        """The executed cell. AssertionError with its traceback where it raises."""
        try:
            return self._do(self._execute(source))
        except CellExecutionError as error:
            raise AssertionError(str(error)) from None

    def fails(self, source: str) -> Cell:
        """The executed cell, which must have raised."""
        try:
            self._do(self._execute(source))
        except CellExecutionError:
            return self.client.nb.cells[-1]
        raise AssertionError(f"nothing was raised: {text(self.client.nb.cells[-1])}")

    async def _execute(self, source: str) -> Cell:
        cells = self.client.nb.cells
        cells.append(nbformat.v4.new_code_cell(source))
        return await self.client.async_execute_cell(cells[-1], len(cells) - 1)

    def run_until(self, source: str, condition: Callable[[Cell], Any], then: Callable[[], Any]) -> Cell:
        """Begin the cell; when `condition` holds of what it has put out, do `then`; the cell when it has ended."""

        async def both() -> Cell:
            task = asyncio.ensure_future(self._execute(source))
            await asyncio.sleep(0)
            cell = self.client.nb.cells[-1]
            await self.until(condition, task)
            done = then()
            if asyncio.iscoroutine(done):
                await done
            with contextlib.suppress(CellExecutionError, DeadKernelError):
                await task
            return cell

        return self._do(both())

    async def until(self, condition: Callable[[Cell], Any], task: asyncio.Future[Cell] | None = None) -> None:
        """Wait until it holds of what the last cell has put out; `task` executes it."""
        cell, end = self.client.nb.cells[-1], time.monotonic() + DEADLINE_S
        while not condition(cell):
            assert task is None or not task.done(), f"it has ended before: {text(cell)}"
            assert time.monotonic() < end, f"after {DEADLINE_S} s still not: {text(cell)}"
            await asyncio.sleep(0.05)

    async def interrupt(self) -> None:
        """The stop button."""
        await self.client.km.interrupt_kernel()

    def is_beating(self) -> bool:
        return bool(self.client.kc.hb_channel.is_beating())

    def close(self) -> None:
        for child in self.children():
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        self._do(self.client._async_cleanup_kernel())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
        shutil.rmtree(self._sockets, ignore_errors=True)

    def children(self) -> list[psutil.Process]:
        """Of the kernel, and theirs."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return self.kernel.children(recursive=True)
        return []


def text(cell: Cell) -> str:
    """All that the cell has put out, as text."""
    parts = []
    for output in cell.outputs:
        if output.output_type == "stream":
            parts.append(output.text)
        elif output.output_type == "error":
            parts.append(f"{output.ename}: {output.evalue}")
        else:
            parts.append(output.data.get("text/plain", ""))
    return "\n".join(parts)


def html(cell: Cell) -> str:
    """The output that is updated in place."""
    found = [output.data["text/html"] for output in cell.outputs if "text/html" in output.get("data", {})]
    assert len(found) <= 1, f"{len(found)} outputs instead of one that is updated"
    return found[0] if found else ""


def picture(cell: Cell) -> str:
    """The plot, as SVG; empty where there is none yet."""
    found = re.search(r'src="data:image/svg\+xml;base64,([^"]+)"', html(cell))
    return base64.b64decode(found[1]).decode() if found else ""
