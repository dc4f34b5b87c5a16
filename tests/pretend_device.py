"""A simulated device "pretend:0" whose tensors store their values on the CPU but cannot be combined with CPU tensors.

Within `pretended()`, an operation on tensors of two devices raises an error as CUDA's do, and so does .numpy() of one
that is not on the CPU. This finds a mask, position or id left on the CPU; results are rounded as on the CPU.
PyTorch registers the device until the process ends: use it in a separate process.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

backend_registration._setup_privateuseone_for_python_backend("pretend")
DEVICE = torch.device("pretend", 0)
CONSTANT = {  # SDPA's kernel: the one of plain operations; whether .to() may keep the Parameter object
    "aten._fused_sdp_choice.default": 0,
    "aten._has_compatible_shallow_copy_type.default": False,
}
MOVES = ("aten._to_copy.default", "aten.copy_.default")


class OnDevice(Tensor):
    """A tensor on the simulated device. inner: its values, on the CPU."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> "OnDevice":
        made = Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), storage_offset=inner.storage_offset(),
            dtype=inner.dtype, device=DEVICE,
        )  # fmt: skip
        made.inner = inner
        return made

    def untyped_storage(self) -> Any:
        return self.inner.untyped_storage()

    def data_ptr(self) -> int:
        return self.inner.data_ptr()

    def detach(self) -> "OnDevice":
        """Detach without PyTorch's own implementation, which cannot copy a tensor's version in inference mode."""
        return OnDevice(self.inner.detach())

    def tolist(self) -> Any:
        return self.inner.tolist()

    def __repr__(self, **_: Any) -> str:
        return f"OnDevice({self.inner!r})"

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        return _computed(function, arguments, options or {})


def _computed(function: Any, arguments: Any, options: dict[str, Any]) -> Any:
    flat, shape = tree_flatten((arguments, options))
    tensors = [one for one in flat if isinstance(one, Tensor)]
    there = [one for one in tensors if isinstance(one, OnDevice)]
    here = [one for one in tensors if not isinstance(one, OnDevice) and one.ndim > 0]  # 0-d: on any device
    if str(function) in CONSTANT:
        return CONSTANT[str(function)]
    if there and here and str(function) not in MOVES and not _indexes(function, flat):
        raise RuntimeError(f"{function}: expected all tensors on one device, got pretend:0 and cpu")
    wanted = options.get("device")
    lands_there = bool(there) if wanted is None else torch.device(wanted).type == DEVICE.type
    if str(function) == "aten.copy_.default":
        lands_there = isinstance(arguments[0], OnDevice)
    flat = [one.inner if isinstance(one, OnDevice) else one for one in flat]
    flat = [torch.device("cpu") if isinstance(one, torch.device) else one for one in flat]
    inner_arguments, inner_options = tree_unflatten(flat, shape)
    result = function(*inner_arguments, **inner_options)
    name = str(function).split(".")[1]
    if name.endswith("_") and not name.endswith("__") and isinstance(arguments[0], Tensor):  # an in-place operation
        return arguments[0]
    return tree_map(lambda one: OnDevice(one) if lands_there and isinstance(one, Tensor) else one, result)


def _indexes(function: Any, flat: list[Any]) -> bool:
    """Whether this is indexing of a tensor on the device, for which CUDA accepts indices on the CPU."""
    return str(function).startswith("aten.index.Tensor") and isinstance(flat[0], OnDevice)


class _Factories(TorchDispatchMode):
    """A mode that handles torch.ones(…, device="pretend") and moves to the device."""

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        return _computed(function, arguments, options or {})


@contextmanager
def pretended() -> Iterator[None]:
    with _Factories():
        yield
