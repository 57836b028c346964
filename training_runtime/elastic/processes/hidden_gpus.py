"""A script's process sees no GPU: it holds no slot, and workers, which do, are forked from it, which CUDA does not survive.

Yet `device = "cuda" if torch.cuda.is_available() else "cpu"` stands at the top of most scripts, and what follows from it is meant for the
workers. So torch tells such a process that there is a GPU, and what the script puts there stays on the processor until it is in a worker:
`reveal` moves it. Samples are loaded on the processor in any case, since processes without a GPU load them, too.

Where the machine has no GPU nothing of this happens.
"""

from __future__ import annotations

import gc
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack, _pop_mode, _push_mode
from torch.utils import _device
from torch.utils.data._utils import pin_memory

from training_runtime import processor
from training_runtime.elastic.processes.becoming import at_the_end

ASK_IN_A_WORKER = "the process that comes to the training sees no GPU, and cannot tell this of the one that its workers see"
_SET_DATA = torch.Tensor.data.__set__  # type: ignore[attr-defined]
_ABOUT_DEVICES = (torch.device, torch._C._nn._parse_to)  # the latter of a module's `to`, which asks its tensors then
_STATE_BYTES = 16  # of CUDA's generator: a seed and an offset
_ATOMS = (str, bytes, int, float, complex, type(None), type, types.ModuleType, types.FrameType, types.CodeType)

_real: dict[tuple[Any, str], Any] = {}  # what was replaced, while it is
_mode: OnProcessor | None = None  # of this process and of those that are forked from it; None: nothing is hidden from it


class OnProcessor(TorchFunctionMode):
    """What is to be on a GPU is on the processor. `placed`: the tensors that the script believes there, by id; None: nobody asks."""

    def __init__(self, placed: weakref.WeakValueDictionary[int, torch.Tensor] | None = None) -> None:
        super().__init__()
        self.placed = placed

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in _ABOUT_DEVICES:
            return func(*args, **kwargs)
        if func is torch.Tensor.cuda:
            return self._put(args[0], args[0])
        if func is torch.Tensor.pin_memory:
            return args[0]
        if func is torch.Tensor.cpu:
            return self._taken_back(func(*args, **kwargs), args[0])
        if func is torch.Tensor.to:
            return self._to(*args, **kwargs)
        if func == _SET_DATA:
            self._mark(args[0], self._is_placed(args[1]))
            return func(*args, **kwargs)
        args, is_put = _off_gpus(func, args, kwargs)
        result = func(*args, **kwargs)
        if is_put or self._any_placed(args, kwargs):
            self._mark_new(result, args)
        return result

    def _to(self, here: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """`Tensor.to` in any of its ways: a device, a dtype, another tensor."""
        said = args[0] if args else kwargs.get("device", kwargs.get("other"))
        if isinstance(said, torch.Tensor):
            is_on_gpu = self._is_placed(said)
        elif said is None or isinstance(said, torch.dtype):
            is_on_gpu = self._is_placed(here)
        elif is_on_gpu := _is_gpu(said):
            args, kwargs = ("cpu", *args[1:]) if args else (), kwargs if args else kwargs | {"device": "cpu"}
        result = here.to(*args, **kwargs)
        return self._put(result, here) if is_on_gpu else self._taken_back(result, here)

    def _put(self, result: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        """On a GPU it would be a copy, unless it was there before."""
        if self.placed is not None and result is before and not self._is_placed(before):
            result = before.clone()
        self._mark(result, True)
        return result

    def _taken_back(self, result: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        return before.clone() if result is before and self._is_placed(before) else result

    def _mark(self, t: object, is_placed: bool) -> None:
        if self.placed is None or not isinstance(t, torch.Tensor):
            return
        if is_placed:
            self.placed[id(t)] = t
        else:
            self.placed.pop(id(t), None)

    def _mark_new(self, result: object, args: tuple[Any, ...]) -> None:
        """What was computed of what is on a GPU is there; what it was written into stays where it was."""
        given = {id(each) for each in args}
        for each in result if isinstance(result, tuple | list) else (result,):
            if id(each) not in given:
                self._mark(each, True)

    def _is_placed(self, t: object) -> bool:
        return self.placed is not None and id(t) in self.placed and isinstance(t, torch.Tensor)

    def _any_placed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        if not self.placed:
            return False
        given = (*args, *kwargs.values())
        return any(any(map(self._is_placed, each)) if isinstance(each, tuple | list) else self._is_placed(each) for each in given)


def begin() -> None:
    """In a script's process, before the script: where the machine has GPUs, they are hidden as said above."""
    global _mode
    if _mode is not None or not processor.gpus() or not torch.backends.cuda.is_built():  # type: ignore[no-untyped-call]
        return
    _mode = OnProcessor(weakref.WeakValueDictionary())
    for (place, name), answer in _answers().items():
        _real[place, name] = getattr(place, name)
        setattr(place, name, answer)
    _load_on_processor()
    _put_in(_mode)


def are_hidden() -> bool:
    """From this process."""
    return bool(_real)


@contextmanager
def aside() -> Iterator[None]:
    """What is made inside is ours, and not noted as the script's. A worker that leaves this for its loop does not come back to it."""
    if _mode is None or not (there := _take_out(_mode)):
        yield
        return
    with at_the_end(lambda: _put_in(there)):
        yield


def on_processor() -> Any:
    """A context in which the script's code computes without a GPU, in whatever process."""
    return nullcontext() if _mode is None else OnProcessor()


def keep_here(samples: Iterable[object]) -> None:
    """Before workers are forked: what samples are made of stays on the processor, wherever the script has put it."""
    if _mode is not None and _mode.placed:
        for key in _tensors_in(samples):
            _mode.placed.pop(key, None)


def reveal(device: torch.device) -> None:
    """In a worker, before anything touches `device`: what the script has put on a GPU goes there. A processor slot leaves all as it is."""
    if _mode is None or not _real:
        return
    if device.type == "cpu":
        _put_in(OnProcessor())
        return
    for (place, name), function in _real.items():
        setattr(place, name, function)
    _real.clear()
    storages: dict[int, torch.UntypedStorage] = {}
    for t in [] if _mode.placed is None else list(_mode.placed.values()):
        with suppress(RuntimeError, NotImplementedError):  # of some kind that cannot: whoever needs it there will say so
            if t.device.type == "cpu":
                t.data = moved(t.data, device, storages)


def moved(t: torch.Tensor, device: torch.device, storages: dict[int, torch.UntypedStorage]) -> torch.Tensor:
    """`t` on `device`. Views of one memory stay that, by the `storages` moved before."""
    if t.layout != torch.strided or t.is_quantized:
        return t.to(device)
    storage = t.untyped_storage()
    if storage.data_ptr() not in storages:
        whole = torch.empty(0, dtype=torch.uint8).set_(storage)
        storages[storage.data_ptr()] = whole.to(device).untyped_storage()
    return torch.empty(0, dtype=t.dtype, device=device).set_(storages[storage.data_ptr()], t.storage_offset(), t.size(), t.stride())


def _tensors_in(roots: Iterable[object]) -> set[int]:
    """Ids of the tensors in objects, and in what they are made of. What a function finds by a global name is not its own."""
    seen, tensors, left = set[int](), set[int](), list(roots)
    while left:
        each = left.pop()
        if isinstance(each, _ATOMS) or id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, torch.Tensor):
            tensors.add(id(each))
        elif isinstance(each, types.FunctionType):
            left += [each.__closure__, each.__defaults__, each.__kwdefaults__]
        else:
            left += gc.get_referents(each)
    return tensors


def _put_in(mode: TorchFunctionMode) -> None:
    """Among the modes that are in force in this thread."""
    _push_mode(mode)  # type: ignore[no-untyped-call]


def _take_out(mode: TorchFunctionMode) -> TorchFunctionMode | None:
    """Wherever it is among them; None where it is not."""
    stack = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    if mode not in stack:
        return None
    for _ in stack:
        _pop_mode()  # type: ignore[no-untyped-call]
    for each in stack:
        if each is not mode:
            _put_in(each)
    return mode


def _off_gpus(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], bool]:
    """The arguments, without a GPU in them, and whether there was one. Changes `kwargs`."""
    is_put = False
    if any(isinstance(each, torch.device) and _is_gpu(each) for each in args):
        args, is_put = tuple("cpu" if isinstance(each, torch.device) and _is_gpu(each) else each for each in args), True
    default = _device.CURRENT_DEVICE if func in _device._device_constructors() else None  # the mode of it comes after this one
    if _is_gpu(kwargs.get("device")) or (kwargs.get("device") is None and not is_put and _is_gpu(default)):
        kwargs["device"], is_put = "cpu", True
    if kwargs.get("pin_memory"):
        kwargs["pin_memory"] = False
    return args, is_put


def _is_gpu(device: object) -> bool:
    """Whether an argument means one: "cuda", "cuda:0", a torch.device, a number."""
    if isinstance(device, torch.device):
        return device.type == "cuda"
    if isinstance(device, str):
        return device.partition(":")[0] == "cuda"
    return isinstance(device, int) and not isinstance(device, bool)


@cache
def _load_on_processor() -> None:
    """What was saved on a GPU, or is to be loaded there, while they are hidden."""

    def deserialize(storage: Any, location: str) -> Any:
        return storage if _real and location.partition(":")[0] == "cuda" else None

    torch.serialization.register_package(5, lambda _: None, deserialize)


def _answers() -> dict[tuple[Any, str], Callable[..., Any]]:
    """What is said in the place of functions that would touch CUDA, or deny it. A worker sees one GPU."""

    def nothing() -> Callable[..., Any]:
        return lambda *_, **__: None  # another one each time: torch.compile tells functions of torch by what they are

    cuda: dict[str, Callable[..., Any]] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_name": lambda _device=None: processor.gpus()[0],
        "get_device_properties": lambda _device=None: _properties(),
        "get_rng_state": lambda _device="cuda": torch.zeros(_STATE_BYTES, dtype=torch.uint8),
        **{name: nothing() for name in ("set_device", "synchronize", "set_rng_state", "reset_peak_memory_stats")},
    }
    accelerator: dict[str, Callable[..., Any]] = {
        "current_device_index": lambda: 0,
        **{name: nothing() for name in ("set_device_index", "synchronize")},
    }
    found = {(torch.cuda, name): answer for name, answer in cuda.items()}
    found |= {(torch.accelerator, name): answer for name, answer in accelerator.items()}
    return found | {(pin_memory, "pin_memory"): lambda data, _device=None: data}


@cache
def _properties() -> types.SimpleNamespace:
    """Of the machine's first GPU, as far as its driver tells without CUDA. RuntimeError where it does not."""
    try:
        import pynvml  # here: few scripts ask

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle).total
    except Exception as error:  # no binding, no library, no leave to open the device
        raise RuntimeError(f"{ASK_IN_A_WORKER} ({error})") from error
    return types.SimpleNamespace(name=processor.gpus()[0], major=major, minor=minor, total_memory=memory)
