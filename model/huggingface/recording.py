"""One run of a network: its attentions under the masks of a spec, the records that a trace keeps, and its residual
stream.

The residual stream is the input of the first layer, the output of each layer, and the modules after the last one (a
final norm, a projection), identified by which module takes whose output. Its hooks are registered once, when a model is
loaded, and do nothing unless this thread is reading. Sizes: B rows, H query heads, Q queries, K keys, T tokens, W
width.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from i18n import N_, msg
from model.attention import ScoreTerms, attend, attend_in_blocks
from model.base import HeadEdit, Residuals, StreamEdit
from model.errors import NotSupported
from model.huggingface.attention_hook import AttentionRun, Call
from model.huggingface.probe import OWN_MASK, NativeMask, Site, image_groups, is_part_of, mask_and_bias, masks_differ
from model.masks import AllowedCache, MaskContext, Masking, MaskSpec, TextSplit
from model.spec import STANDARD
from model.trace import LayerRecord

NOT_INTERCEPTED = N_("only {count} of its {all} attention layers used the attention interface")
NO_LIST = N_(
    "Its layers are not a list that each token's state passes through, so the states after each of them are "
    "not available"
)
SEVERAL = N_("Its layers have several attentions each")
STREAM_TOLERANCE = 1e-5  # relative to the largest state
ROOTS = {"rsqrt", "sqrt"}


class Recording(AttentionRun):
    """A run that computes every attention under the masks of spec and keeps its record. Used for one pass."""

    _output: Tensor  # of the last attention, for the values passed so far

    def __init__(
        self,
        sites: tuple[Site, ...],
        spec: MaskSpec,
        keeps: dict[str, Tensor],
        *,
        standard: MaskSpec = STANDARD,
        splits: Mapping[str, TextSplit | None] | None = None,
        edit: HeadEdit | None = None,
        masking: Masking = MaskContext.allowed,
        groups: Sequence[Tensor] = (),
    ) -> None:
        """keeps, splits: by attention; see Inputs.keeps and mask_kinds.Cells. edit: changes each attention's head
        outputs. masking: returns each attention's mask. groups: for a row with an image, see ImageBatch.
        """
        super().__init__(keep.shape[1] for keep in keeps.values())
        self.records: list[LayerRecord] = []
        self.custom_attention = any(site.custom_attention for site in sites)
        self._selecting_site = next((site for site in sites if site.selects), None)
        self._sites, self._spec, self._keeps = sites, spec, keeps
        self._standard, self._splits, self._edit, self._masking = standard, splits or {}, edit, masking
        self._layers: Counter[str] = Counter()
        self._made: dict[str, AllowedCache] = defaultdict(dict)  # part -> the masks that its layers share
        self._groups = groups
        self._last: Call | None = None
        self._given: list[tuple[Tensor, Any]] = []  # masks passed to transformers, with its mask functions
        self._of_image: dict[tuple[int, NativeMask], tuple[NativeMask, Tensor | None]] = {}

    def mask(self, arguments: dict[str, Any]) -> Tensor:
        """Return a mask that changes nothing: `attend` applies the masks of the spec.

        A network that selects some of the tokens that its masks allow gets its own masks, to keep its selection
        unchanged.
        """
        given = super().mask(arguments)
        if self._selecting_site is not None:
            allowed = self._selecting_site.native.over(self._keeps[self._selecting_site.part], arguments["q_length"])
            given = given.masked_fill(~allowed, torch.finfo(given.dtype).min)
        self._given.append((given, arguments["mask_function"]))
        return given

    def attend(self, call: Call) -> Tensor:
        before, self._last = self.records.pop() if call.continues(self._last) else None, call
        site = self._sites[len(self.records)] if len(self.records) < len(self._sites) else None
        if site is None or call.module not in (None, site.module):
            raise NotSupported(msg("its attentions do not run in the same order as when it was loaded"))
        terms = self._terms(site, call)
        context = self._context(site, call) if before is None else before.context
        v = call.v if before is None else torch.cat([before.v, call.v], dim=-1)
        self.records.append(LayerRecord(call.q, call.k, v, context, scale=call.scale, terms=terms))
        how: dict[str, Any] = {"scale": call.scale, "terms": terms}
        if context.is_long and self._masking is MaskContext.allowed:
            rows = None if context.only_causal(self._spec) else lambda some: context.of(some).allowed(self._spec)
            output = attend_in_blocks(call.q, call.k, call.v, rows, **how)
        else:
            allowed = self._masking(context, self._spec, self._made[site.part])
            output = attend(call.q, call.k, call.v, allowed, **how)
        self._output = output if before is None else torch.cat([self._output, output], dim=-1)
        return output if self._edit is None else self._edited(self._edit, site, output.shape[-1])

    def _edited(self, edit: HeadEdit, site: Site, width: int) -> Tensor:
        """Return `edit`'s result for the last part, of this width, of a site's output. The values that are still to
        come, and their output, are zeros for `edit`: no dimension depends on another."""
        record, known = self.records[-1], self._output.shape[-1]
        v, output = (F.pad(one, (0, site.calls * width - known)) for one in (record.v, self._output))
        edited = edit(site.part, record.context.layer, replace(record, v=v), output)
        return edited[..., known - width : known]

    def layers(self) -> dict[str, tuple[LayerRecord, ...]]:
        """Return the records of each part. Raises NotSupported unless every attention was computed by this run."""
        if len(self.records) != len(self._sites):
            raise NotSupported(msg(NOT_INTERCEPTED, count=len(self.records), all=len(self._sites)))
        parts = dict.fromkeys(site.part for site in self._sites)
        pairs = list(zip(self._sites, self.records, strict=True))
        return {part: tuple(record for site, record in pairs if site.part == part) for part in parts}

    def _context(self, site: Site, call: Call) -> MaskContext:
        """Return the mask context, with the image tokens that the network lets attend to each other. Raises
        NotSupported for a mask that is neither of this kind nor the network's mask on text."""
        layer, native, groups = self._layers[site.part], site.native, None
        self._layers[site.part] += 1
        masks = [function for added in call.added for given, function in self._given if is_part_of(added, given)]
        if self._groups and masks:  # otherwise its own code masks, which `_check_masks` checks
            key = (id(masks[0]), native)
            if key not in self._of_image:
                self._of_image[key] = image_groups(masks[0], native, self._groups)
            native, groups = self._of_image[key]
        return MaskContext(
            self._keeps[site.part].to(call.q.device),  # layers may be on several devices
            call.q.shape[2],
            call.q.shape[1],
            layer,
            sizes=dict(native.sizes),
            available=site.available,
            standard=self._standard,
            split=self._splits.get(site.part),
            groups=None if groups is None else groups.to(call.q.device),
        )

    def _terms(self, site: Site, call: Call) -> ScoreTerms:
        """Return the call's terms with the biases that the network adds to the scores, without its masks; −inf for
        tokens that it did not select. Raises NotSupported unless its masks are those found when it was loaded."""
        blocked, terms = None, call.terms
        for added in call.added:
            if any(is_part_of(added, given) for given, _ in self._given):
                continue
            cells, bias = mask_and_bias(added)
            if cells is not None:
                blocked = cells if blocked is None else blocked | cells
            if bias is not None:
                terms = replace(terms, bias=bias if terms.bias is None else terms.bias + bias)
        if site.selects and blocked is not None:
            # exclude cells that its own masks block: they become allowed when a mask is lifted
            unchosen = blocked & site.native.over(self._keeps[site.part], blocked.shape[-2])
            bias = torch.zeros((), device=unchosen.device) if terms.bias is None else terms.bias
            return replace(terms, bias=torch.where(unchosen, float("-inf"), bias))
        if not site.selects and (blocked is not None or site.adds_own_masks):
            self._check_masks(site, call, blocked)
        return terms

    def _check_masks(self, site: Site, call: Call, blocked: Tensor | None) -> None:
        keep = self._keeps[site.part]
        real = self._keeps["decoder" if site.part == "cross" else site.part]
        queries = real[:, real.shape[1] - call.q.shape[2] :]
        expected = ~site.native.over(keep, call.q.shape[2])
        blocked = expected.new_zeros(1, 1, 1, 1) if blocked is None else blocked
        wanted = blocked | expected if not site.adds_own_masks else blocked
        if masks_differ(wanted, expected, queries):
            problem = msg(OWN_MASK)
            raise NotSupported(msg("on {count} tokens {problem}", count=call.k.shape[2], problem=problem))


class FrozenNorms(TorchFunctionMode):
    """A mode in which norms divide by the deviations of another run. kept: the reciprocals of an earlier run of the
    same code, in order; None: keep those of this run."""

    def __init__(self, kept: list[Tensor] | None = None) -> None:
        super().__init__()
        self.kept: list[Tensor] = []
        self._again = None if kept is None else iter(kept)

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(function, "__name__", "").strip("_")
        if name == "layer_norm":
            return self._layer_norm(*args, **kwargs)
        if name == "rms_norm":
            return self._rms_norm(*args, **kwargs)
        result = function(*args, **kwargs)
        if name in ROOTS or (name == "pow" and len(args) > 1 and isinstance(args[1], float) and args[1] in (-0.5, 0.5)):
            return self._keep(result)
        return result

    def _keep(self, found: Tensor) -> Tensor:
        if self._again is None:
            self.kept.append(found)
            return found
        return next(self._again)

    def _layer_norm(
        self, x: Tensor, shape: Any, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
    ) -> Tensor:
        result = self._rms_norm(x - x.mean(tuple(range(-len(shape), 0)), keepdim=True), shape, weight, eps)
        return result if bias is None else result + bias

    def _rms_norm(self, x: Tensor, shape: Any, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
        eps = torch.finfo(x.dtype).eps if eps is None else eps
        result = x * self._keep((x.square().mean(tuple(range(-len(shape), 0)), keepdim=True) + eps).rsqrt())
        return result if weight is None else result * weight


class Uncapped(TorchFunctionMode):
    """A mode without the softcap of a network's logits: tanh of a tensor as wide as the vocabulary does nothing."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self._vocabulary = vocabulary
        self.capped = False

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if getattr(function, "__name__", "") == "tanh" and args[0].shape[-1] == self._vocabulary:
            self.capped = True
            return args[0]
        return function(*args, **(kwargs or {}))


@dataclass(frozen=True, eq=False)
class LayerCall:
    """The call of a layer: the module and its arguments."""

    module: nn.Module
    arguments: tuple[Any, ...]
    options: dict[str, Any]

    def again(self, x: Tensor, module: nn.Module) -> Tensor:
        """Return the output of `module`, this layer or its replacement, for another stream [B,T,W]."""
        if self.arguments:
            return cast(Tensor, _tensor(module(x, *self.arguments[1:], **self.options)))
        return cast(Tensor, _tensor(module(**self.options | {"hidden_states": x})))


@dataclass(eq=False)
class ResidualStreams:
    """The streams read from a run. streams: the input of the first layer and the output of each; entered: the input of
    each. before, calls: the modules outside the list of layers, with input and output, that were called before the
    first layer and, at the end of the run, after the last. entering: changes the input of each layer.
    """

    streams: list[Tensor] = field(default_factory=list)
    entered: list[Tensor] = field(default_factory=list)
    layers: list[LayerCall] = field(default_factory=list)
    before: list[tuple[nn.Module, Tensor, Tensor]] = field(default_factory=list)
    calls: list[tuple[nn.Module, Tensor, Tensor]] = field(default_factory=list)
    entering: StreamEdit | None = None


_READING: ContextVar[ResidualStreams | None] = ContextVar("_READING", default=None)  # for this thread


class ResidualHooks:
    """Hooks on a stack whose list of layers is its submodule `path`; None if there is none. several: whether layers
    have several attentions, since the stream between these is not read."""

    def __init__(self, stack: nn.Module, path: str | None, *, several: bool = False) -> None:
        self._why_not = msg(SEVERAL) if several else None if path else msg(NO_LIST)
        if path is None:
            return
        holder = stack
        for name in path.split("."):  # at every level down to the list, hook the modules outside it
            for other, module in holder.named_children():
                if other != name:
                    module.register_forward_hook(_called, with_kwargs=True)
            holder = holder.get_submodule(name)
        for layer in holder.children():
            layer.register_forward_pre_hook(_enter, with_kwargs=True)
            layer.register_forward_hook(_leave)

    @contextmanager
    def reading(self, entering: StreamEdit | None = None) -> Iterator[ResidualStreams]:
        """Read this thread's run of the stack inside this context, with `entering` changing each layer's input. Raises
        NotSupported for a stack without a list of layers."""
        if self._why_not:
            raise NotSupported(self._why_not)
        read = ResidualStreams(entering=entering)
        token = _READING.set(read)
        try:
            yield read
        finally:
            _READING.reset(token)


def residuals(read: ResidualStreams, states: Tensor) -> Residuals:
    """Return the residual stream of a run whose final states are `states` [B,T,W].

    Raises NotSupported unless the modules after the last layer turn its output into these states.
    """
    if not read.streams or any(stream.shape != read.streams[0].shape for stream in read.streams):
        raise NotSupported(msg(NO_LIST))
    here, after = read.streams[-1], []
    for module, given, made in read.calls:
        if given.data_ptr() == here.data_ptr() and given.shape == here.shape:
            after.append(module)
            here = made

    def final(stream: Tensor) -> Tensor:
        return reduce(lambda x, module: _tensor(module(x)), after, stream)

    ends, tolerance = final(read.streams[-1]), STREAM_TOLERANCE * max(float(states.abs().max()), 1.0)
    if ends.shape != states.shape or not float((ends - states).abs().max()) <= tolerance:
        raise NotSupported(msg("What follows its last layer is not a norm or projection that Unmask can find"))
    return Residuals(tuple(read.streams), final)


def _enter(
    module: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Return the layer's arguments if they are changed."""
    read = _READING.get()
    given = arguments[0] if arguments else options.get("hidden_states")
    if read is None or not isinstance(given, Tensor):
        return None
    if read.entering is not None:
        given = read.entering(len(read.layers), given)
        arguments = (given, *arguments[1:]) if arguments else ()
        options = options if arguments else options | {"hidden_states": given}
    read.layers.append(LayerCall(module, arguments, options))
    read.entered.append(given)
    if not read.streams:
        read.streams.append(given)
        read.before = list(read.calls)
    return None if read.entering is None else (arguments, options)


def _leave(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:
    read = _READING.get()
    if read is not None and read.streams:
        read.streams.append(_tensor(output))
        read.calls.clear()  # only modules after the last layer are needed


def _called(module: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any], output: Any) -> None:
    read = _READING.get()
    given = next((one for one in (*arguments, *options.values()) if isinstance(one, Tensor)), None)
    if read is not None and given is not None and isinstance(made := _tensor(output), Tensor):
        read.calls.append((module, given, made))


def _tensor(output: Any) -> Any:
    return output[0] if isinstance(output, tuple | list) else output
