"""Learn, from one small pass through a network, where its attentions are and which masks it has there.

Sizes: B rows, H query heads, Hkv key-value heads, Q queries, K keys, D head width.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from i18n import say
from model import masks
from model.attention import attend
from model.errors import NotSupported
from model.huggingface import native_masks
from model.huggingface.attention_hook import Call, blank
from model.huggingface.layers import Place, Whereabouts
from model.huggingface.native_masks import NativeMask


@dataclass(frozen=True, eq=False)
class Site:
    """A place in a network where attention happens.

    part: "self" where a model has one kind of attention, else "encoder", "decoder" or "cross". native: the masks the
    model itself has there. masks_itself: whether it adds them to the scores by itself, all of them.
    own_code: whether its attention is computed by code of its own, not by transformers' attention interface.
    selects: whether it looks only at some of the tokens that its masks allow, chosen by the network for each text.
    place: the layer, None where the network has no list of them.
    """

    module: nn.Module | None
    part: str
    native: NativeMask
    masks_itself: bool = False
    own_code: bool = False
    place: Place | None = None
    selects: bool = False

    @property
    def causal(self) -> bool:
        return self.native.causal

    @property
    def available(self) -> frozenset[str]:
        """The masks that a reader can have here. A target sees all of its source; a source is read as a whole."""
        if self.part == "cross":
            return frozenset({"padding"})
        return frozenset(masks.MASK_NAMES) - ({"causal"} if self.part == "encoder" else set())


@dataclass(eq=False)
class Probe:
    """Its output is not the network's.

    keeps: for each part, which of its tokens are real: bool [B,K]. part: the kind of attention to expect, "cross"
    apart, which shows by its rectangular shape: the two sides of a probe must differ in length. far, edges: see
    native_masks.
    """

    keeps: dict[str, Tensor]
    edges: tuple[int, ...]
    far: Tensor
    part: str = "self"
    whereabouts: Whereabouts = field(default_factory=Whereabouts)
    sites: list[Site] = field(default_factory=list)
    heads: list[tuple[int, int]] = field(default_factory=list)  # query and key-value heads of each site
    bytes_per_token: int = 0  # of q, k and v, all sites together
    positions: Tensor | None = None
    own_code: bool = True
    _given: list[tuple[Tensor, NativeMask | None]] = field(
        default_factory=list
    )  # the masks that transformers asked for

    def mask(self, arguments: dict[str, Any]) -> Tensor | None:
        edges = (*self.edges, *filter(None, [arguments.get("local_size")]))
        native = native_masks.of_function(arguments["mask_function"], arguments["q_length"], edges, self.far)
        given = blank(arguments)
        self._given.append((given, native))
        return given

    def concerns(self, queries: int, keys: int) -> bool:
        """Whether either number is that of a text's tokens."""
        lengths = {keep.shape[1] for keep in self.keeps.values()}
        return queries in lengths or keys in lengths

    def attend(self, call: Call) -> Tensor:
        part = "cross" if self.part == "decoder" and call.q.shape[2] != call.k.shape[2] else self.part
        keep, real = self.keeps[part], self.keeps[self.part]
        shape = (len(keep), real.shape[1], keep.shape[1])
        if (len(call.q), call.q.shape[2], call.k.shape[2]) != shape:
            raise NotSupported(
                say(
                    "it has an attention of {queries} queries to {keys} keys on {tokens} tokens: "
                    "they are not the tokens of the text",
                    queries=call.q.shape[2],
                    keys=call.k.shape[2],
                    tokens=keep.shape[1],
                )
            )
        native, masks_itself, selects = self._native(call, keep, real)
        own_code = call.module is None
        module = self.whereabouts.module() if own_code else call.module
        self.sites.append(Site(module, part, native, masks_itself, own_code, self.whereabouts.place(), selects))
        self.heads.append((call.q.shape[1], call.k.shape[1]))
        self.bytes_per_token += sum(t[0, :, 0].numel() * t.element_size() for t in (call.q, call.k, call.v))
        allowed = native.over(keep, call.q.shape[2])
        return attend(call.q, call.k, call.v, allowed, scale=call.scale)

    def _native(self, call: Call, keep: Tensor, real: Tensor) -> tuple[NativeMask, bool, bool]:
        """Its masks; whether it adds them by itself; whether it blocks more, of no kind we know."""
        asked = None
        blocked = torch.zeros(1, 1, call.q.shape[2], call.k.shape[2], dtype=torch.bool, device=keep.device)
        for added in call.added:
            given = next((one for one in self._given if is_part_of(added, one[0])), None)
            if given is not None:
                asked = given[1]
                if asked is None:
                    raise NotSupported(say(native_masks.OWN_MASK))
                continue
            cells, bias = native_masks.split(added)
            if cells is not None and bias is not None:
                raise NotSupported(
                    say("its position bias and its mask are one number, so the mask cannot be lifted alone")
                )
            if cells is not None:
                blocked = blocked | cells
        kinds = {native for _, native in self._given}
        if asked is None and len(kinds) == 1 and not blocked.any():
            asked = next(iter(kinds))  # it made something of its own of the mask that it was given
        if asked is None:
            return native_masks.of_cells(blocked, keep, real, self.edges), True, False
        known = ~asked.over(keep, call.q.shape[2])
        if not native_masks.differs(known | blocked, known, real):
            return asked, False, False
        try:
            return native_masks.of_cells(known | blocked, keep, real, self.edges), False, False
        except NotSupported:
            if len(kinds) > 1:  # which mask it then chooses by is not known
                raise
            return asked, False, True


def is_part_of(added: Tensor, given: Tensor) -> bool:
    """Whether it is a mask that was given, or a slice of it."""
    return added.untyped_storage().data_ptr() == given.untyped_storage().data_ptr()
