"""Detection of a network's attentions, their masks and layers in one small pass, and of the kinds of its other layers.
A network's own masks are recognised from transformers' mask functions or from what is added to the scores.

Sizes: B rows, H query heads, Hkv key-value heads, Q queries, K keys, D head width.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedConfig

from i18n import N_, msg, msg_list
from model.attention import attend
from model.errors import NotSupported
from model.huggingface.attention_hook import AttentionRun, Call
from model.mask_kinds import KINDS, OF_IMAGES, Cells
from model.masks import MASK_NAMES, MaskContext, MaskSpec

ATTENTION = "attention"
STATE_SPACE, RECURRENCE, LINEAR_ATTENTION = N_("state space"), N_("recurrence"), N_("linear attention")
LAYER_KINDS = (  # (pattern of the names of a layer's parts, kind); the first match is used
    (r"cross.?att", N_("cross-attention to images")),
    (r"attention|attn", None),  # an attention that the probe did not find
    (r"mamba|ssm|statespace", STATE_SPACE),
    (r"delta|lightning|retention|linearatt", LINEAR_ATTENTION),
    (r"recurrent|rglru|rwkv|lstm", RECURRENCE),
    (r"conv", N_("convolution")),
    (r"mlp|moe|expert|feedforward|ffn", N_("feed-forward")),
)
BESIDE = (  # (pattern, kind) for the name and class of a part that writes into the residual stream
    (r"mlp|moe|expert|feed_?forward|ffn", "MLP"),
    (r"conv(?!1d)", "convolution"),
    *((pattern, kind) for pattern, kind in LAYER_KINDS if kind not in (None, "convolution", "feed-forward")),
    (r"", "MLP"),
)
LINEAR = re.compile(r"linear_?att|delta|lightning|retention|kda", re.IGNORECASE)
UNKNOWN_KIND = N_("its layer {number} ({name}) is of a kind that Unmask does not support")


@dataclass(frozen=True)
class LayerLocation:
    """The layer of an attention. path: of the list of layers; number: in that list; serial: of the module's call."""

    path: str
    number: int
    serial: int


def layer_numbers(locations: list[LayerLocation | None]) -> tuple[int, ...] | None:
    """Return the number of each attention's layer; None if they are not unique: shared weights, nested blocks, or
    several attentions per layer in sequence, as in LongCat-Flash, which transformers too counts one by one."""
    found = [location for location in locations if location is not None]
    numbers = tuple(location.number for location in found)
    if len(set(numbers)) < len(locations) or len({location.path for location in found}) > 1:
        return None
    return numbers


def layer_kinds(stack: nn.Module, sites: "Sequence[Site]") -> tuple[str, ...]:
    """Return the kind of each layer of the stack with these attentions, whose layers are in one list.

    Raises NotSupported for any other layer that seems to have attention.
    """
    shown, kinds = {site.location.number: site for site in sites if site.location is not None}, []
    path = next(site.location.path for site in sites if site.location is not None)
    for number, layer in enumerate(stack.get_submodule(path).children()):
        parts = [type(module).__name__ for module in layer.modules()] + [name for name, _ in layer.named_children()]
        parts = [part for part in parts if "norm" not in part.lower()]  # "post_attention_layernorm"
        names = " ".join(parts).lower()
        kind = next((kind for pattern, kind in LAYER_KINDS if re.search(pattern, names)), None)
        kind = LINEAR_ATTENTION if any(LINEAR.search(part) for part in parts) else kind
        if number in shown:
            others = sorted(_kinds_beside(layer, shown[number].module) - {"MLP"})
            kind = msg("{kinds} besides attention", kinds=msg_list([*map(msg, others)])) if others else ATTENTION
        if kind is None:
            raise NotSupported(msg(UNKNOWN_KIND, number=number, name=type(layer).__name__))
        kinds.append(kind)
    return tuple(kinds)


def parts_beside(layer: nn.Module, attention: nn.Module | None) -> str:
    """Name the parts of a layer, besides its attention, that write into the residual stream: "state space + MLP" …"""
    found = _kinds_beside(layer, attention)
    return msg_list([*map(msg, sorted(found - {"MLP"})), *(["MLP"] if "MLP" in found or not found else [])], " + ")


def _kinds_beside(layer: nn.Module, attention: nn.Module | None) -> set[str]:
    found = set()
    for name, part in layer.named_children():
        names = f"{name} {type(part).__name__}".lower()
        holds_it = any(one is attention for one in part.modules())
        if not holds_it and "norm" not in names and next(part.parameters(), None) is not None:
            linear = LINEAR_ATTENTION if LINEAR.search(names) else None
            found.add(linear or next(kind for known, kind in BESIDE if re.search(known, names)))
    return found


FAR_POSITIONS = 64
BLOCKING_THRESHOLD = -9999.0  # networks block a score by adding at most this; a bias is above it
EDGES = re.compile(r"window|chunk|local|block|radius|stride|top_?k|budget|landmark|segment")
OWN_MASK = N_("its mask is neither causal nor a sliding window nor chunks, or it does not block padding")


@dataclass(frozen=True)
class NativeMask:
    """The masks of one attention apart from padding. sizes: (kind, positions)."""

    causal: bool
    sizes: tuple[tuple[str, int], ...] = ()

    def cells(self, positions: Tensor) -> Tensor:
        """Return bool [S,S], True = may attend, at these increasing positions of a text without padding."""
        query, key = positions[None, None, :, None], positions[None, None, None]
        cells = Cells(query, key, query, key, int(positions[-1]) + 1)
        allowed = torch.ones(len(positions), len(positions), dtype=torch.bool)
        for name, size in ((("causal", 0),) if self.causal else ()) + self.sizes:
            mask = KINDS[name].cells(cells, size)
            allowed = allowed if mask is None else allowed & mask[0, 0]
        return allowed

    def over(self, keep: Tensor, queries: int) -> Tensor:
        """Return the mask with padding, for keep [B,K]: bool, broadcastable to [B,1,Q,K]."""
        context = MaskContext(keep, queries, 1, sizes=dict(self.sizes))
        allowed = context.allowed(MaskSpec(causal=self.causal))
        return torch.ones(1, 1, 1, 1, dtype=torch.bool, device=keep.device) if allowed is None else allowed


def edges_of_masks(config: PreTrainedConfig) -> tuple[int, ...]:
    """Return the lengths of windows, chunks and blocks in a configuration."""
    found = set()

    def visit(data: Any, name: str = "") -> None:
        if isinstance(data, dict | list | tuple):
            for key, value in data.items() if isinstance(data, dict) else ((name, value) for value in data):
                visit(value, str(key))
        elif type(data) is int and 1 < data < 10**6 and EDGES.search(name):
            found.add(data)

    visit(config.get_text_config().to_dict())
    return tuple(sorted(found))


def far_positions(edges: tuple[int, ...], context: int) -> Tensor:
    """Return positions from 0 to the end of the context, dense at the start and on both sides of every edge."""
    near = [edge + step for edge in (4, *_sizes(edges)) for step in range(-4, 4)]
    spread = torch.linspace(0, context - 1, FAR_POSITIONS).long().tolist()
    return torch.tensor(sorted({position for position in (*near, *spread) if 0 <= position < context}))


def mask_of_function(
    mask_function: Callable[..., Any], tokens: int, edges: tuple[int, ...], far: Tensor
) -> NativeMask | None:
    """Identify transformers' mask function of (row, head, query, key); None for an unknown kind. It is compared at the
    far positions, so that a pass over a few tokens finds a window of thousands."""
    for positions in (far, torch.arange(tokens)):
        try:
            native = _evaluate_mask(mask_function, positions)
        except IndexError:  # the function indexes a tensor with one entry per token of the text
            continue
        for candidate in _candidates(edges):
            if torch.equal(native, candidate.cells(positions)):
                return candidate
    return None


def _evaluate_mask(mask_function: Callable[..., Any], positions: Tensor) -> Tensor:
    """Evaluate the mask function: bool [n,n]. On the CPU: an index out of range on a GPU makes CUDA unusable."""
    zero = torch.zeros(1, 1, 1, 1, dtype=torch.long)
    with _MoveToCpu():
        found = mask_function(zero, zero, positions[None, None, :, None], positions[None, None, None, :])
    return torch.as_tensor(found).cpu().expand(1, 1, len(positions), len(positions))[0, 0]


class _MoveToCpu(TorchFunctionMode):
    """A mode in which functions of tensors first move them to the CPU."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        here = {name: self._moved(one) for name, one in (kwargs or {}).items()}
        return function(*self._moved(args), **here)

    def _moved(self, some: Any) -> Any:
        if isinstance(some, tuple):
            return tuple(map(self._moved, some))
        return some.cpu() if isinstance(some, Tensor) else some


def image_groups(
    mask_function: Callable[..., Any], native: NativeMask, groups: Sequence[Tensor]
) -> tuple[NativeMask, Tensor | None]:
    """Identify the mask of a row with an image by transformers' function: as on text, or with the tokens of one of
    `groups` (int64 [T] each, -1 outside) attending to each other. Raises NotSupported for any other mask."""
    positions = torch.arange(len(groups[0]))
    found = _evaluate_mask(mask_function, positions)
    if torch.equal(found, native.cells(positions)):
        return native, None
    for size in (len(positions), *dict(native.sizes).values()):  # anywhere in the image, or within a window
        wider = replace(native, sizes=(*native.sizes, (OF_IMAGES, size)))
        for group in groups:
            context = MaskContext(torch.ones(1, len(positions), dtype=torch.bool), len(positions), 1,
                                  sizes=dict(wider.sizes), groups=group[None])  # fmt: skip
            if torch.equal(found, context.allowed_in_row(MaskSpec(causal=native.causal), 0)):
                return wider, group[None]
    raise NotSupported(msg(OWN_MASK))


def mask_of_cells(blocked: Tensor, keep: Tensor, real: Tensor, edges: tuple[int, ...]) -> NativeMask:
    """Identify the mask that blocks these cells [B,1 or H,Q,K] of a batch with keep [B,K], at its real queries [B,Q].

    Raises NotSupported for an unknown kind.
    """
    for candidate in _candidates(edges):
        if not masks_differ(blocked, ~candidate.over(keep, blocked.shape[-2]), real):
            return candidate
    raise NotSupported(msg(OWN_MASK))


def masks_differ(one: Tensor, other: Tensor, real: Tensor) -> bool:
    """Whether two masks [B,1 or H,Q,K] differ at the real queries [B,Q]."""
    return bool(((one ^ other) & real[:, None, :, None]).any())


def mask_and_bias(added: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Split a term added to the scores into the cells that it blocks (bool) and a remaining bias; None for none."""
    if added.dtype == torch.bool:
        return (None, None) if bool(added.all()) else (~added, None)
    blocked = added <= BLOCKING_THRESHOLD
    masks = bool(blocked.any())
    bias = added.masked_fill(blocked, 0.0) if masks else added
    return blocked if masks else None, bias if bool(bias.any()) else None


def _candidates(edges: tuple[int, ...]) -> Iterator[NativeMask]:
    sized = [name for name, kind in KINDS.items() if kind.sized]
    for causal in (True, False):
        yield NativeMask(causal)
        yield from (NativeMask(causal, ((name, size),)) for size in _sizes(edges) for name in sized)


def _sizes(edges: tuple[int, ...]) -> list[int]:
    """Return the edges as inclusive and exclusive distances, whole or half on each side."""
    return sorted({size for edge in edges for size in (edge, edge + 1, edge // 2, edge // 2 + 1) if size > 0})


OTHER_TOKENS = N_(
    "it has an attention of {queries} queries to {keys} keys on {tokens} tokens: they are not the tokens of the text"
)


@dataclass(frozen=True, eq=False)
class Site:
    """One attention of a network.

    part: "self" in a model with one kind of attention, else "encoder", "decoder" or "cross". native: the model's own
    masks. heads: query and key-value heads. bytes_per_token: of q, k and v. adds_own_masks: whether its code adds all
    of them to the scores. custom_attention: whether its code computes attention without transformers' attention
    interface. selects: whether it attends only to some of the tokens that its masks allow, selected by the network for
    each text. location: the layer, None if the network has no list of layers. calls: how many pass its values, see
    Call.continues.
    """

    module: nn.Module | None
    part: str
    native: NativeMask
    heads: tuple[int, int]
    bytes_per_token: int
    adds_own_masks: bool = False
    custom_attention: bool = False
    location: LayerLocation | None = None
    selects: bool = False
    calls: int = 1

    @property
    def available(self) -> frozenset[str]:
        """The masks that a user can switch. Cross-attention and encoders have no causal mask."""
        if self.part == "cross":
            return frozenset({"padding"})
        return frozenset(MASK_NAMES) - ({"causal"} if self.part == "encoder" else set())


class Probe(AttentionRun):
    """A run that finds a network's attentions; its output is not the network's. The inputs of encoder and decoder must
    differ in length, because cross-attention is recognised by its shape.

    sites: the attentions found so far.
    """

    def __init__(self, keeps: dict[str, Tensor], edges: tuple[int, ...], far: Tensor) -> None:
        """keeps: see Inputs.keeps. edges: see edges_of_masks. far: see far_positions."""
        super().__init__(keep.shape[1] for keep in keeps.values())
        self._keeps, self._edges, self._far = keeps, edges, far
        self._given: list[tuple[Tensor, NativeMask | None]] = []  # masks passed to transformers, and their kinds
        self._running: list[tuple[str, nn.Module, int]] = []  # running modules: name, module, serial of the call
        self._calls = 0
        self._last: Call | None = None
        self.sites: list[Site] = []

    @contextmanager
    def watch(self, stack: nn.Module) -> Iterator[None]:
        hooks = []
        for name, module in stack.named_modules():

            def enter(module: nn.Module, _: object, name: str = name) -> None:
                self._calls += 1
                self._running.append((name, module, self._calls))

            def leave(*_: object) -> None:
                self._running.pop()

            hooks += [module.register_forward_pre_hook(enter), module.register_forward_hook(leave)]
        try:
            yield
        finally:
            self._running.clear()
            for hook in hooks:
                hook.remove()

    def _location(self) -> LayerLocation | None:
        """Return the location of the outermost running module that is in a list of layers."""
        for name, _, serial in self._running:
            path, _, number = name.rpartition(".")
            if number.isdigit():
                return LayerLocation(path, int(number), serial)
        return None

    def mask(self, arguments: dict[str, Any]) -> Tensor:
        edges = (*self._edges, *filter(None, [arguments.get("local_size")]))
        native = mask_of_function(arguments["mask_function"], arguments["q_length"], edges, self._far)
        given = super().mask(arguments)
        self._given.append((given, native))
        return given

    def attend(self, call: Call) -> Tensor:
        part = "cross" if self.part == "decoder" and call.q.shape[2] != call.k.shape[2] else self.part
        keep, real = self._keeps[part], self._keeps[self.part]
        shape = (len(keep), real.shape[1], keep.shape[1])
        if (len(call.q), call.q.shape[2], call.k.shape[2]) != shape:
            raise NotSupported(msg(OTHER_TOKENS, queries=call.q.shape[2], keys=call.k.shape[2], tokens=keep.shape[1]))
        native, adds_own_masks, selects = self._native(call, keep, real)
        custom_attention = call.module is None
        module = self._running[-1][1] if custom_attention and self._running else call.module
        heads, size = (call.q.shape[1], call.k.shape[1]), sum(t[0, :, 0].nbytes for t in (call.q, call.k, call.v))
        site = Site(module, part, native, heads, size, adds_own_masks, custom_attention, self._location(), selects)
        if call.continues(self._last):
            before = self.sites.pop()
            size = before.bytes_per_token + call.v[0, :, 0].nbytes
            site = replace(site, calls=before.calls + 1, bytes_per_token=size)
        self._last = call
        self.sites.append(site)
        return attend(call.q, call.k, call.v, native.over(keep, call.q.shape[2]), scale=call.scale)

    def _native(self, call: Call, keep: Tensor, real: Tensor) -> tuple[NativeMask, bool, bool]:
        """Return its masks; whether its code adds all of them; whether it blocks other cells, by no known mask."""
        native = None
        blocked = torch.zeros(1, 1, call.q.shape[2], call.k.shape[2], dtype=torch.bool, device=keep.device)
        for added in call.added:
            given = next((one for one in self._given if is_part_of(added, one[0])), None)
            if given is not None:
                native = given[1]
                if native is None:
                    raise NotSupported(msg(OWN_MASK))
                continue
            cells, bias = mask_and_bias(added)
            if cells is not None and bias is not None:
                template = N_("its position bias and its mask are one number, so the mask cannot be turned off alone")
                raise NotSupported(msg(template))
            if cells is not None:
                blocked = blocked | cells
        kinds = {native for _, native in self._given}
        if native is None and len(kinds) == 1 and not blocked.any():
            native = next(iter(kinds))  # the network made its own mask from the one it got
        if native is None:
            return mask_of_cells(blocked, keep, real, self._edges), True, False
        known = ~native.over(keep, call.q.shape[2])
        if not masks_differ(known | blocked, known, real):
            return native, False, False
        try:
            return mask_of_cells(known | blocked, keep, real, self._edges), False, False
        except NotSupported:
            if len(kinds) > 1:  # the mask that it selects from is ambiguous
                raise
            return native, False, True


def is_part_of(added: Tensor, given: Tensor) -> bool:
    """Whether a term is a view of a mask that was passed to the network."""
    return added.untyped_storage().data_ptr() == given.untyped_storage().data_ptr()
