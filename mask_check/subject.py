"""A wrapper that calls the module under test uniformly, whatever arguments its forward takes.

Sizes: B rows, T tokens, S tokens of the source, V outputs at each position (its vocabulary).
"""

import copy
import inspect
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn

from i18n import N_, msg
from mask_check.findings import CannotCheck
from model.blocks import FIRST_POSITIONS, numbers_positions_by_padding

IDS = ("input_ids", "idx", "tokens", "ids", "x")
TARGETS = "targets"  # nanoGPT's name for the ids of the next tokens
EMBEDS = "inputs_embeds"
NEEDS = ("pixel_values", "input_features", "input_values", "images", "audio_values")
OWN_WIDTHS = ("hidden_size", "dim")  # of a part last: without weights these are a softmax's axis, a rotation's head
WIDTHS = ("n_embd", "d_model", "in_features", "embed_dim", "normalized_shape", "input_size")
KERNELS = ("sdpa", "flash_attn", "flex_attn", "attention_backend")  # in _supports_… of a transformers class
WRAPPERS = ("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel")
IDS_OF_TABLE = 97
NO_IDS = N_("expected a forward that takes token ids, such as forward(input_ids), got one without")
NEEDS_MORE = N_("its forward needs {what}: only models that read token ids alone can be checked")
STOPPED = N_(
    "the check was stopped after {seconds:g} s and {forwards} forward passes; allow more time or a shorter text"
)
SCRIPTED = N_("it is a scripted or traced module, which takes no hooks: check the module that it was made from")
NOT_OF_ALL = N_("expected logits of every position, [{rows}, {length}, V], from its forward, got {got}")


class TookTooLong(CannotCheck):
    """Raised when the caller's time limit is exceeded."""


class CheckedModule:
    """A module that maps ids [B,T] to outputs [B,T,V].

    kind: "decoder", "encoder" or "encoder-decoder"; for the last, ids are the decoder's input and `source` [S] the
    encoder's. forwards: the number of calls; before_forward is called before each, and may raise to stop the check.
    row_by_row: whether `outputs` runs each row of a batch by itself, for a module whose rows change each other.
    needs: required arguments of its forward that are never passed.
    """

    def __init__(self, module: nn.Module, *, seconds: float | None = None) -> None:
        self.module = module
        self.inner = inner = unwrapped(module)
        self.config: Any = getattr(inner, "config", None)
        self.forwards = 0
        self.before_forward: Callable[[], None] = lambda: None
        self.source: Tensor | None = None
        self.row_arguments: dict[str, Tensor] = {}  # further arguments, [1,T] each, passed with every row
        self.row_by_row = False
        self._needs_targets = False
        self._until = None if seconds is None else time.monotonic() + seconds
        self._seconds = seconds
        self.table: nn.Embedding | None = None  # of a module that takes embeddings [B,T,D] in place of ids
        self._may_take_embeddings = not embeddings(inner)
        if isinstance(inner, torch.jit.ScriptModule):
            raise CannotCheck(msg(SCRIPTED))
        parameters = list(module.parameters())
        self.parameters = sum(p.numel() for p in parameters)
        weight = next((p for p in parameters if p.is_floating_point()), torch.zeros(1))
        self.dtype, self.device = weight.dtype, weight.device
        signature = inspect.signature(inner.forward).parameters
        self._takes = set(signature)
        further = any(argument.kind == argument.VAR_KEYWORD for argument in signature.values())
        if self.is_pretrained_model and further and "past_key_values" in self._takes:
            self._takes.add("use_cache")  # some pass it on in **kwargs
        for name, argument in signature.items():
            if argument.default is argument.empty and name == EMBEDS:
                self._make_table()
            elif argument.default is argument.empty and name in NEEDS:
                raise CannotCheck(msg(NEEDS_MORE, what=name))
        first = (name for name, one in signature.items() if one.kind == one.POSITIONAL_OR_KEYWORD)
        known = (EMBEDS,) if self.table is not None else IDS
        self.needs_mask = getattr(signature.get("attention_mask"), "default", None) is inspect.Parameter.empty
        self.ids_name = next((name for name in (*known, *first) if name in self._takes), "")
        if not self.ids_name:
            raise CannotCheck(msg(NO_IDS))
        filled = (self.ids_name, "attention_mask", "decoder_input_ids")
        named = (one for one in signature.values() if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD))
        self.needs = [one.name for one in named if one.default is one.empty and one.name not in filled]
        # a configuration of transformers' says so of an encoder or a decoder alone, too
        declared = bool(getattr(self.config, "is_encoder_decoder", False)) and not self.is_pretrained_model
        pair = declared or "decoder_input_ids" in self._takes
        self.kind = "encoder-decoder" if pair else "decoder"
        self.takes_positions = False  # set by find_positions
        self.ignores_positions = False  # set by padding.judge_positions if they change nothing
        self._first = 0
        self.numbers_positions_by_padding = any(map(numbers_positions_by_padding, module.modules()))

    def takes(self, name: str) -> bool:
        return name in self._takes

    @property
    def takes_mask(self) -> bool:
        """Whether its forward takes a padding mask."""
        return self.takes("attention_mask")

    @property
    def has_position_argument(self) -> bool:
        """Whether the forward has an argument for position ids that it is not known to ignore."""
        name = "decoder_position_ids" if self.kind == "encoder-decoder" else "position_ids"
        return self.takes(name) and not self.ignores_positions

    @property
    def is_pretrained_model(self) -> bool:
        """Whether its class is one of transformers', or derived from one, as every PreTrainedModel is."""
        return class_in("transformers.", self.inner) is not None

    @property
    def is_transformers_model(self) -> bool:
        """Whether it is, or wraps, one of transformers' own models, whose conventions are known."""
        return self.is_pretrained_model and model_of_transformers(self.inner)[0] is not None

    @property
    def has_known_kernel(self) -> bool:
        """Whether the attention kernel named in its configuration is known to be the one that it runs."""
        says = any(getattr(self.inner, f"_supports_{one}", False) for one in KERNELS)
        return says or not self.is_pretrained_model or self.is_transformers_model

    @property
    def embeddings(self) -> list[nn.Embedding]:
        """The embeddings that may look up its ids."""
        return [*embeddings(self.inner), *([] if self.table is None else [self.table])]

    def _make_table(self) -> None:
        """Create random embeddings, with the width that the config or the first part that has one declares."""
        attributes = [(part, name) for part in (self.config, self.inner) for name in (*OWN_WIDTHS, *WIDTHS)]
        attributes += [(part, name) for part in self.inner.modules() for name in WIDTHS]
        attributes += [(part, name) for part in self.inner.modules() if part._parameters for name in OWN_WIDTHS]
        found = (getattr(part, name, None) for part, name in attributes)
        sizes = (one[-1] if isinstance(one, tuple) else one for one in found)
        width = next((one for one in sizes if isinstance(one, int) and one > 0), 0)
        if not width:
            raise CannotCheck(msg("it takes embeddings whose width is not known: give it a config"))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.table = nn.Embedding(IDS_OF_TABLE, width).to(self.device, self.dtype)

    def uncompiled(self) -> AbstractContextManager[None]:
        """Call the module itself within the context, not its compiled form, which ignores new hooks."""
        return setting([(self, "module", self.inner)])

    def in_float64(self) -> "CheckedModule":
        """Return a copy of it in float64."""
        copied = copy.copy(self)
        own = [one for part in self.inner.modules() for one in vars(part).values()]
        own += [one for some in own if isinstance(some, dict) for one in some.values()]
        own += [one for some in own if isinstance(some, list | tuple) for one in some]
        not_leaves = [one for one in own if isinstance(one, Tensor) and not one.is_leaf]  # deepcopy refuses them
        memo = {id(tensor): tensor.detach().clone() for tensor in not_leaves}
        copied.module = copied.inner = copy.deepcopy(self.inner, memo).double()
        model_class, network = model_of_transformers(copied.inner)
        if model_class:  # its experts are run by torch's grouped_mm, which takes no float64
            network.set_experts_implementation("eager")
        copied.table = None if self.table is None else copy.deepcopy(self.table).double()
        copied.dtype = torch.float64
        return copied

    def find_positions(self, ids: Tensor, tolerance: float) -> None:
        """Set takes_positions: whether passing the positions that it counts by itself, from one of FIRST_POSITIONS on,
        leaves the outputs of ids [T] unchanged. From then on `call` takes position ids counted from 0."""
        if not self.has_position_argument:
            return
        counted = torch.arange(len(ids), device=ids.device)[None]
        without_positions = self.outputs(ids[None])
        for first in (0,) if self.numbers_positions_by_padding else FIRST_POSITIONS:
            self._first = first
            try:
                with_positions = self.outputs(ids[None], position_ids=counted)
            except (CannotCheck, MemoryError):
                raise
            except Exception:  # noqa: BLE001 - its table may be too short, or it may take no positions
                continue
            self.takes_positions = float(max_difference(with_positions, without_positions).max()) <= tolerance
            if self.takes_positions:
                return
        self._first = 0

    def outputs(self, ids: Tensor, keep: Tensor | None = None, **more: Any) -> Tensor:
        """Return outputs [B,T,V], float32 or, in float64, float64. ids [B,T]; keep bool [B,T], True = a real token."""
        if not self.row_by_row or len(ids) == 1:
            return self.batch_outputs(ids, keep, **more)

        def of_row(value: Any, row: int) -> Any:
            return value[row : row + 1] if isinstance(value, Tensor) and len(value) == len(ids) else value

        arguments = {"ids": ids, "keep": keep, **more}.items()
        rows = ({name: of_row(value, row) for name, value in arguments} for row in range(len(ids)))
        return torch.cat([self.batch_outputs(**row) for row in rows])

    def batch_outputs(self, ids: Tensor, keep: Tensor | None = None, **more: Any) -> Tensor:
        """Return outputs as `outputs` does, but always with all rows in one forward pass."""
        with torch.no_grad():
            found = self.call(ids, keep, **more)
            shape, of_last = getattr(logits_in(found), "shape", ())[:-1], ((len(ids), 1), (len(ids),))
            if self.takes(TARGETS) and not self._needs_targets and ids.shape[1] > 1 and shape in of_last:
                self._needs_targets = True  # without targets, nanoGPT returns the last position only
                found = self.call(ids, keep, **more)
            return self.read(found, ids)

    def call(self, ids: Tensor, keep: Tensor | None = None, **more: Any) -> Any:
        """Return what the module itself returns. more: arguments by a decoder's names for them; those that are None are
        left out."""
        if self._until is not None and time.monotonic() > self._until:
            raise TookTooLong(msg(STOPPED, seconds=self._seconds, forwards=self.forwards))
        self.before_forward()
        self.forwards += 1
        arguments: dict[str, Any] = {name: one.expand(len(ids), -1) for name, one in self.row_arguments.items()}
        arguments |= {name: value for name, value in more.items() if value is not None}
        if "position_ids" in arguments:
            arguments["position_ids"] = arguments["position_ids"] + self._first
        if self.needs_mask and self.kind != "encoder-decoder" and keep is None:
            keep = torch.ones_like(ids)
        mask = None if keep is None else keep if keep.is_floating_point() else keep.long()
        if self.kind == "encoder-decoder":
            arguments["decoder_input_ids"] = ids
            if "position_ids" in arguments:
                arguments["decoder_position_ids"] = arguments.pop("position_ids")
            if "encoder_outputs" not in arguments and self.ids_name not in arguments and self.source is not None:
                arguments[self.ids_name] = self.source[None].expand(len(ids), -1)
            if self.needs_mask and self.ids_name in arguments:
                arguments.setdefault("attention_mask", torch.ones_like(arguments[self.ids_name]))
        else:
            arguments[self.ids_name] = ids
        if mask is not None:
            arguments["decoder_attention_mask" if self.kind == "encoder-decoder" else "attention_mask"] = mask
        if self.takes("use_cache"):
            arguments.setdefault("use_cache", False)
        # a module may write into its arguments, and the rows of an expanded tensor share memory
        arguments = {name: one.clone() if isinstance(one, Tensor) else one for name, one in arguments.items()}
        if self._needs_targets:
            arguments[TARGETS] = ids.clone()
        if self.table is None and self._may_take_embeddings and self.kind != "encoder-decoder":
            self._may_take_embeddings = False
            try:
                return self.module(**arguments)
            except (RuntimeError, TypeError, ValueError, AssertionError):  # it may take embeddings
                with suppress(CannotCheck):
                    self._make_table()
                if self.table is None:
                    raise
        if self.table is not None:
            arguments[self.ids_name] = self.table(ids)
        return self.module(**arguments)

    def read(self, found: Any, ids: Tensor) -> Tensor:
        """Return the outputs [B,T,V] in what a forward returned. Raises CannotCheck if a position has none."""
        logits = logits_in(found, ids)
        if not isinstance(logits, Tensor) or logits.ndim != 3 or logits.shape[:2] != ids.shape:
            got = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            if logits is None and isinstance(found, dict):
                got = f"{{{', '.join(map(str, found)):.80}}}"
            values = {"rows": ids.shape[0], "length": ids.shape[1], "got": got}
            raise CannotCheck(msg(NOT_OF_ALL, **values))
        return logits if logits.dtype == torch.float64 else logits.float()


def logits_in(found: Any, ids: Tensor | None = None) -> Any:
    """Return the logits in a forward's result: by name, the tensor itself, or a tuple's first [B,T,V] for these ids."""
    for name in ("logits", "prediction_logits", "last_hidden_state"):
        if not isinstance(found, Tensor) and getattr(found, name, None) is not None:
            return getattr(found, name)
    if isinstance(found, dict):
        return found.get("logits")
    if not isinstance(found, tuple | list) or not found:
        return found
    of_all = (one for one in found if isinstance(one, Tensor) and one.ndim == 3 and ids is not None)
    return next((one for one in of_all if ids is None or one.shape[:2] == ids.shape), found[0])


def class_in(package: str, module: nn.Module) -> type | None:
    """Return the first class of a package that the module is an instance of; None if there is none."""
    return next((one for one in type(module).__mro__ if one.__module__.startswith(package)), None)


def model_of_transformers(module: nn.Module) -> tuple[type | None, Any]:
    """Return the transformers model that a module is or wraps, after its class in transformers; else (None, module)."""
    models = (part for part in module.modules() if hasattr(part, "get_input_embeddings"))
    of_class = ((class_in("transformers.models.", part), part) for part in models)
    return next((one for one in of_class if one[0]), (None, module))


def unwrapped(module: Any) -> Any:
    """Return the module inside torch.compile, DistributedDataParallel and similar wrappers."""
    while True:
        inner = getattr(module, "_orig_mod", None)
        inner = getattr(module, "module", None) if inner is None and type(module).__name__ in WRAPPERS else inner
        if not isinstance(inner, nn.Module):
            return module
        module = inner


def text_config(config: Any, **which: bool) -> Any:
    """Return the text part of a transformers configuration (decoder=True or encoder=True), or another unchanged."""
    return config.get_text_config(**which) if hasattr(config, "get_text_config") else config


def embeddings(module: nn.Module) -> list[nn.Embedding]:
    return [part for part in module.modules() if isinstance(part, nn.Embedding)]


@contextmanager
def hooks_on(parts: Iterable[nn.Module], hook: Callable[..., Any], **options: bool) -> Iterator[None]:
    """Register a forward hook on all of these parts within the context."""
    with ExitStack() as stack:
        for part in parts:
            if not isinstance(part, torch.jit.ScriptModule):  # which takes no hooks
                stack.enter_context(part.register_forward_hook(hook, **options))
        yield


@contextmanager
def setting(attributes: Iterable[tuple[Any, str, Any]]) -> Iterator[None]:
    """Set attributes, given as (object, name, value), within the context; then restore their own values."""
    given = list(attributes)
    own = [(one, name, getattr(one, name)) for one, name, _ in given]
    try:
        for attribute in given:
            setattr(*attribute)
        yield
    finally:
        for attribute in own:
            setattr(*attribute)


@contextmanager
def restoring_state(module: nn.Module) -> Iterator[None]:
    """Restore afterwards what the module's parts stored in a forward, as attributes and buffers: of a table that is
    rebuilt for every length, the table and the length; of a buffer that is written into, its numbers."""
    every = (stored for part in module.modules() for stored in (vars(part), part._buffers))
    own = [(stored, {**stored}) for stored in every if isinstance(stored, dict)]  # a scripted part's _buffers is not
    try:
        with restoring_buffers(module):
            yield
    finally:
        for now, before in own:
            for name in now.keys() - before.keys():
                del now[name]
            now.update(before)


@contextmanager
def restoring_buffers(module: nn.Module) -> Iterator[None]:
    """Undo writes into the module's buffers afterwards, such as counters, caches and BatchNorm's means."""
    own = [(buffer, buffer.clone()) for buffer in module.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, before in own:
                if not torch.equal(buffer, before):
                    buffer.copy_(before)


@contextmanager
def eval_mode(module: nn.Module) -> Iterator[None]:
    """Put the module into eval mode; every part gets its own mode back afterwards."""
    with setting((part, "training", part.training) for part in module.modules()), no_autocast_cache():
        module.eval()
        yield


@contextmanager
def restoring_module(module: nn.Module) -> Iterator[None]:
    """Put the module into eval mode; its parts' modes, attributes and buffers are restored afterwards."""
    with eval_mode(module), restoring_state(module):
        yield


@contextmanager
def no_autocast_cache() -> Iterator[None]:
    """Keep a surrounding autocast from caching cast weights: those cast in a pass without gradients would have none in
    a training step that follows."""
    enabled = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(enabled)


def max_difference(one: Tensor, other: Tensor) -> Tensor:
    """Return the largest difference at each position, [..,V] -> [..]; infinite for NaN, or if only one is infinite."""
    difference = (one - other).abs_()  # in place: for a large vocabulary it takes a gigabyte
    difference.masked_fill_(one == other, 0.0)  # -inf logits of entries that are never predicted
    return difference.nan_to_num_(nan=torch.inf, posinf=torch.inf).amax(-1)


def largest(outputs: Tensor) -> float:
    """Return the largest absolute value of the finite numbers, 0 if there are none."""
    return float(outputs.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).abs_().max()) if outputs.numel() else 0.0
