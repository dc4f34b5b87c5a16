"""transformers' attention, sent through our own core.

transformers lets a program register an attention function and a mask function under a name of its own. Ours ask the
run that is going on in this thread what to do: a `Probe` learns, once for each model, where its attentions are and
which masks it has; a `Recording` computes each of them under the masks that a reader chose, and keeps what a trace
needs. The run travels in a ContextVar and the model is never changed, so that threads can share it.
Sizes: B rows, H query heads, Hkv key-value heads, Q queries, K keys, D head width.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface

from model import masks
from model.attention import ScoreTerms, attend
from model.errors import NotSupported
from model.masks import MaskContext, MaskSpec
from model.spec import STANDARD
from model.trace import LayerRecord

NAME = "unmask"
SUPPORTED = (
    "gpt2, llama, mistral, qwen2, qwen3, gemma2, gemma3, gpt_neox, opt, phi3, olmo2, gpt_oss, bert, roberta, "
    "distilbert, t5, bart, marian and others that send their attention through transformers' attention interface"
)


@dataclass(frozen=True, eq=False)
class Site:
    """A place in a network where attention happens.

    part: "self" where a model has one kind of attention, else "encoder", "decoder" or "cross".
    causal, window: the masks the model itself has there, apart from padding.
    """

    module: nn.Module
    part: str
    causal: bool
    window: int | None

    @property
    def available(self) -> frozenset[str]:
        """The masks that a reader can have here. A target sees all of its source; a source is read as a whole."""
        if self.part == "cross":
            return frozenset({"padding"})
        return frozenset(masks.MASK_NAMES) - ({"causal"} if self.part == "encoder" else set())


@dataclass(frozen=True, eq=False)
class Call:
    """What transformers hands to an attention function: q [B,H,Q,D], k and v [B,Hkv,K,D]."""

    module: nn.Module
    q: Tensor
    k: Tensor
    v: Tensor
    native_mask: Tensor | None
    scale: float | None
    terms: ScoreTerms
    window: int | None


class Run(Protocol):
    """positions [B,T]: where each token stands, for models that work this out by themselves and get padding wrong."""

    positions: Tensor | None

    def attend(self, call: Call) -> Tensor: ...
    def mask(self, arguments: dict[str, Any]) -> Tensor | None: ...


_RUN: ContextVar[Run | None] = ContextVar("the run that is going on in this thread", default=None)


@contextmanager
def going_on(run: Run) -> Iterator[None]:
    """Within it, this thread's networks ask `run` for their attention."""
    token = _RUN.set(run)
    try:
        yield
    finally:
        _RUN.reset(token)


@dataclass(eq=False)
class Probe:
    """Learns a network's attentions from one small pass. Its output is not the network's.

    part: the kind of attention to expect, "cross" apart, which shows by its rectangular shape: the two sides of a
    probe must differ in length. far: positions, from the first to the context's last, at which the network's masks
    are compared with ours, so that a window or a chunk of thousands of positions shows in a pass over a few tokens.
    """

    far: Tensor
    part: str = "self"
    sites: list[Site] = field(default_factory=list)
    heads: list[tuple[int, int]] = field(default_factory=list)  # query and key-value heads of each site
    bytes_per_token: int = 0  # of q, k and v, all sites together
    positions: Tensor | None = None

    def mask(self, arguments: dict[str, Any]) -> Tensor | None:
        """The network's own mask, padding apart, at the far positions: bool [1,1,S,S]."""
        far = self.far.to(arguments["device"])
        zero = torch.zeros(1, 1, 1, 1, dtype=torch.long, device=far.device)
        native = arguments["mask_function"](zero, zero, far[None, None, :, None], far[None, None, None, :])
        return torch.as_tensor(native).expand(1, 1, len(far), len(far))

    def attend(self, call: Call) -> Tensor:
        part = "cross" if self.part == "decoder" and call.q.shape[2] != call.k.shape[2] else self.part
        shape = (1, 1, len(self.far), len(self.far))
        native = torch.ones(shape, dtype=torch.bool) if call.native_mask is None else call.native_mask.cpu()
        later = (self.far[:, None] < self.far[None, :]).expand(shape)
        causal = not bool((native & later).any())
        ours = ~later if causal else torch.ones_like(later)
        if call.window is not None:
            ours = ours & ((self.far[:, None] - self.far[None, :]).abs() < call.window)
        if native.dtype != torch.bool or not torch.equal(native, ours):
            raise NotSupported("it masks cells in a way of its own, neither causal nor a sliding window")
        self.sites.append(Site(call.module, part, causal, call.window))
        self.heads.append((call.q.shape[1], call.k.shape[1]))
        self.bytes_per_token += sum(t[0, :, 0].numel() * t.element_size() for t in (call.q, call.k, call.v))
        return attend(call.q, call.k, call.v, None, scale=call.scale)


class Recording:
    """Computes every attention under the masks of spec and keeps its record. Lives for one run."""

    def __init__(
        self,
        sites: tuple[Site, ...],
        spec: MaskSpec,
        keeps: dict[str, Tensor],
        *,
        standard: MaskSpec = STANDARD,
        documents: Mapping[str, Callable[[str], Tensor]] | None = None,
    ) -> None:
        """keeps: for each part, which of its keys are real: bool [B,K]; documents: for a part, see masks.build."""
        self.records: list[LayerRecord] = []
        self.positions: Tensor | None = None
        self._sites, self._spec, self._keeps = sites, spec, keeps
        self._standard, self._documents = standard, documents or {}
        self._layers: Counter[str] = Counter()
        self._made: dict[str, dict] = defaultdict(dict)  # of each part, the masks that its layers share

    def mask(self, arguments: dict[str, Any]) -> Tensor | None:
        """None: the masks are built where they are used, from what the reader chose."""
        return None

    def attend(self, call: Call) -> Tensor:
        site = self._sites[len(self.records)] if len(self.records) < len(self._sites) else None
        if site is None or site.module is not call.module:
            raise NotSupported("its attentions do not come in the order in which they came when it was loaded")
        place = self._place(site, call)
        self.records.append(LayerRecord(call.q, call.k, call.v, place, scale=call.scale, terms=call.terms))
        allowed = place.allowed(self._spec, self._made[site.part])
        return attend(call.q, call.k, call.v, allowed, scale=call.scale, terms=call.terms)

    def layers(self) -> dict[str, tuple[LayerRecord, ...]]:
        """The records of each part. Raises NotSupported unless every attention of the network came through here."""
        if len(self.records) != len(self._sites):
            raise NotSupported(
                f"only {len(self.records)} of its {len(self._sites)} attention layers used the attention interface"
            )
        parts = dict.fromkeys(site.part for site in self._sites)
        pairs = list(zip(self._sites, self.records, strict=True))
        return {part: tuple(record for site, record in pairs if site.part == part) for part in parts}

    def _place(self, site: Site, call: Call) -> MaskContext:
        layer = self._layers[site.part]
        self._layers[site.part] += 1
        return MaskContext(
            self._keeps[site.part],
            call.q.shape[2],
            call.q.shape[1],
            layer,
            window=site.window,
            available=site.available,
            standard=self._standard,
            documents=self._documents.get(site.part),
        )


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **extra: Any,
) -> tuple[Tensor, None]:
    """transformers' attention function: q [B,H,Q,D], k and v [B,Hkv,K,D] -> output [B,Q,H,D], no weights."""
    terms = ScoreTerms(extra.get("softcap"), _bias(extra.get("position_bias")), extra.get("s_aux"))
    call = Call(module, query, key, value, attention_mask, scaling, terms, extra.get("sliding_window"))
    return _current().attend(call).transpose(1, 2).contiguous(), None


def _bias(bias: Tensor | None) -> Tensor | None:
    """None for a bias of zeros, which is what T5's cross-attention gets."""
    return bias if bias is not None and bool(bias.any()) else None


def _mask(**arguments: Any) -> Tensor | None:
    """transformers' mask function: what it returns is the attention function's attention_mask."""
    return _current().mask(arguments)


def _current() -> Run:
    run = _RUN.get()
    if run is None:
        raise RuntimeError(f"attention {NAME!r} works only within a run; use HuggingFaceModel.run")
    return run


def give_positions(embedding: nn.Module) -> None:
    """Make a position embedding that counts a row's cells, padding included, use the run's positions."""

    def use_ours(_: nn.Module, arguments: tuple, options: dict) -> tuple[tuple, dict]:
        run = _RUN.get()
        if run is not None and run.positions is not None:
            options = options | {"position_ids": run.positions}
        return arguments, options

    def without_extra_axis(_: nn.Module, __: tuple, embedded: Tensor) -> Tensor:
        return embedded.squeeze(0) if embedded.ndim == 4 else embedded  # BART's puts a batch axis before ours

    embedding.register_forward_pre_hook(use_ours, with_kwargs=True)
    embedding.register_forward_hook(without_extra_axis)


# Both, always: an attention function without a mask function of the same name gets no mask and no warning.
AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, _mask)
