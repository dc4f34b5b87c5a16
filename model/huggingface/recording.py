"""One run of a network: every attention computed under the masks of a spec, and what of it a trace keeps.

Sizes: B rows, H query heads, Q queries, K keys.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from i18n import say
from model.attention import ScoreTerms, attend
from model.base import HeadEdit
from model.errors import NotSupported
from model.huggingface import native_masks
from model.huggingface.attention_hook import Call, blank
from model.huggingface.probe import Site, is_part_of
from model.masks import AllowedCache, MaskContext, Masking, MaskSpec, TextSplit
from model.spec import STANDARD
from model.trace import LayerRecord


class Recording:
    """Computes every attention under the masks of spec and keeps its record. Lives for one run."""

    def __init__(
        self,
        sites: tuple[Site, ...],
        spec: MaskSpec,
        keeps: dict[str, Tensor],
        *,
        standard: MaskSpec = STANDARD,
        splits: Mapping[str, TextSplit] | None = None,
        edit: HeadEdit | None = None,
        masking: Masking = MaskContext.allowed,
    ) -> None:
        """keeps: for each part, which of its keys are real: bool [B,K]; splits: for a part, see Cells; edit:
        what becomes of each attention's heads; masking: what gives each attention's mask.
        """
        self.records: list[LayerRecord] = []
        self.positions: Tensor | None = None
        self.own_code = any(site.own_code for site in sites)
        self._chooser = next((site for site in sites if site.selects), None)
        self._sites, self._spec, self._keeps = sites, spec, keeps
        self._standard, self._splits, self._edit, self._masking = standard, splits or {}, edit, masking
        self._layers: Counter[str] = Counter()
        self._made: dict[str, AllowedCache] = defaultdict(dict)  # of each part, the masks that its layers share
        self._given: list[Tensor] = []

    def mask(self, arguments: dict[str, Any]) -> Tensor | None:
        """One that changes nothing: the masks are built where they are used, from what the reader chose.

        A network that chooses among the tokens its masks allow gets its own, so that it chooses as it was trained to.
        """
        given = blank(arguments)
        if self._chooser is not None:
            allowed = self._chooser.native.over(self._keeps[self._chooser.part], arguments["q_length"])
            given = given.masked_fill(~allowed, torch.finfo(given.dtype).min)
        self._given.append(given)
        return given

    def concerns(self, queries: int, keys: int) -> bool:
        """Whether either number is that of a text's tokens."""
        lengths = {keep.shape[1] for keep in self._keeps.values()}
        return queries in lengths or keys in lengths

    def attend(self, call: Call) -> Tensor:
        site = self._sites[len(self.records)] if len(self.records) < len(self._sites) else None
        if site is None or call.module not in (None, site.module):
            raise NotSupported(say("its attentions do not run in the same order as when it was loaded"))
        terms = self._terms(site, call)
        place = self._place(site, call)
        self.records.append(LayerRecord(call.q, call.k, call.v, place, scale=call.scale, terms=terms))
        allowed = self._masking(place, self._spec, self._made[site.part])
        output = attend(call.q, call.k, call.v, allowed, scale=call.scale, terms=terms)
        return output if self._edit is None else self._edit(site.part, place.layer, self.records[-1], output)

    def layers(self) -> dict[str, tuple[LayerRecord, ...]]:
        """The records of each part. Raises NotSupported unless every attention of the network came through here."""
        if len(self.records) != len(self._sites):
            raise NotSupported(
                say(
                    "only {count} of its {all} attention layers used the attention interface",
                    count=len(self.records),
                    all=len(self._sites),
                )
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
            sizes=dict(site.native.sizes),
            available=site.available,
            standard=self._standard,
            split=self._splits.get(site.part),
        )

    def _terms(self, site: Site, call: Call) -> ScoreTerms:
        """The call's terms, and what the network adds to the scores besides its masks, which are left out.

        Raises NotSupported where those are not the masks it showed when it was loaded.
        """
        blocked = None
        terms = call.terms
        for added in call.added:
            if any(is_part_of(added, given) for given in self._given):
                continue
            cells, bias = native_masks.split(added)
            if cells is not None:
                blocked = cells if blocked is None else blocked | cells
            if bias is not None:
                terms = replace(terms, bias=bias if terms.bias is None else terms.bias + bias)
        if site.selects:
            return _without_unchosen(terms, site, blocked, self._keeps[site.part])
        if blocked is not None or site.masks_itself:
            self._check_masks(site, call, blocked)
        return terms

    def _check_masks(self, site: Site, call: Call, blocked: Tensor | None) -> None:
        keep = self._keeps[site.part]
        real = self._keeps["decoder" if site.part == "cross" else site.part]
        queries = real[:, real.shape[1] - call.q.shape[2] :]
        expected = ~site.native.over(keep, call.q.shape[2])
        blocked = expected.new_zeros(1, 1, 1, 1) if blocked is None else blocked
        wanted = blocked | expected if not site.masks_itself else blocked
        if native_masks.differs(wanted, expected, queries):
            problem = say(native_masks.OWN_MASK)
            raise NotSupported(say("on {count} tokens {problem}", count=call.k.shape[2], problem=problem))


def _without_unchosen(terms: ScoreTerms, site: Site, blocked: Tensor | None, keep: Tensor) -> ScoreTerms:
    """With -inf added to the scores of the tokens that the network's masks allow and that it did not choose.

    Cells that its masks block were never chosen from: once the reader lifts the mask, all of them are looked at.
    """
    if blocked is None:
        return terms
    unchosen = blocked & site.native.over(keep, blocked.shape[-2])
    bias = torch.zeros((), device=keep.device) if terms.bias is None else terms.bias
    return replace(terms, bias=torch.where(unchosen, float("-inf"), bias))
