"""One run of a network: its attentions computed under the masks of a spec, and the records that a trace keeps.

Sizes: B rows, H query heads, Q queries, K keys.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from i18n import N_, msg
from model.attention import ScoreTerms, attend, attend_in_blocks
from model.base import HeadEdit
from model.errors import NotSupported
from model.huggingface.attention_hook import AttentionRun, Call
from model.huggingface.probe import OWN_MASK, NativeMask, Site, differs, image_groups, is_part_of, split
from model.masks import AllowedCache, MaskContext, Masking, MaskSpec, TextSplit
from model.spec import STANDARD
from model.trace import LayerRecord

NOT_INTERCEPTED = N_("only {count} of its {all} attention layers used the attention interface")


class Recording(AttentionRun):
    """Computes every attention under the masks of spec and keeps its record. Lives for one run."""

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
        """keeps, splits: by attention; see Inputs.keeps and mask_kinds.Cells. edit: changes each attention's heads.
        masking: gives each attention's mask. groups: of a row with an image, see ImageBatch.
        """
        super().__init__(keep.shape[1] for keep in keeps.values())
        self.records: list[LayerRecord] = []
        self.own_code = any(site.own_code for site in sites)
        self._chooser = next((site for site in sites if site.selects), None)
        self._sites, self._spec, self._keeps = sites, spec, keeps
        self._standard, self._splits, self._edit, self._masking = standard, splits or {}, edit, masking
        self._layers: Counter[str] = Counter()
        self._made: dict[str, AllowedCache] = defaultdict(dict)  # for each part, the masks that its layers share
        self._groups = groups
        self._given: list[tuple[Tensor, Any]] = []  # with transformers' function that says what it should block
        self._of_image: dict[tuple[int, NativeMask], tuple[NativeMask, Tensor | None]] = {}

    def mask(self, arguments: dict[str, Any]) -> Tensor:
        """One that changes nothing: `attend` applies the masks of the spec.

        A network that selects some of the tokens that its masks allow gets its own masks, so that it selects the same.
        """
        given = super().mask(arguments)
        if self._chooser is not None:
            allowed = self._chooser.native.over(self._keeps[self._chooser.part], arguments["q_length"])
            given = given.masked_fill(~allowed, torch.finfo(given.dtype).min)
        self._given.append((given, arguments["mask_function"]))
        return given

    def attend(self, call: Call) -> Tensor:
        site = self._sites[len(self.records)] if len(self.records) < len(self._sites) else None
        if site is None or call.module not in (None, site.module):
            raise NotSupported(msg("its attentions do not run in the same order as when it was loaded"))
        terms, context = self._terms(site, call), self._context(site, call)
        self.records.append(LayerRecord(call.q, call.k, call.v, context, scale=call.scale, terms=terms))
        how: dict[str, Any] = {"scale": call.scale, "terms": terms}
        if context.is_long and self._masking is MaskContext.allowed:
            rows = None if context.only_causal(self._spec) else lambda some: context.of(some).allowed(self._spec)
            output = attend_in_blocks(call.q, call.k, call.v, rows, **how)
        else:
            allowed = self._masking(context, self._spec, self._made[site.part])
            output = attend(call.q, call.k, call.v, allowed, **how)
        return output if self._edit is None else self._edit(site.part, context.layer, self.records[-1], output)

    def layers(self) -> dict[str, tuple[LayerRecord, ...]]:
        """The records of each part. Raises NotSupported unless every attention of the network came through here."""
        if len(self.records) != len(self._sites):
            raise NotSupported(msg(NOT_INTERCEPTED, count=len(self.records), all=len(self._sites)))
        parts = dict.fromkeys(site.part for site in self._sites)
        pairs = list(zip(self._sites, self.records, strict=True))
        return {part: tuple(record for site, record in pairs if site.part == part) for part in parts}

    def _context(self, site: Site, call: Call) -> MaskContext:
        """With the tokens that the network lets see each other for an image's sake. Raises NotSupported for a mask that
        is neither that nor the one it has on text."""
        layer, native, groups = self._layers[site.part], site.native, None
        self._layers[site.part] += 1
        asked = [function for added in call.added for given, function in self._given if is_part_of(added, given)]
        if self._groups and asked:  # without, its own code masks: `_check_masks` sees the cells
            key = (id(asked[0]), native)
            if key not in self._of_image:
                self._of_image[key] = image_groups(asked[0], native, self._groups)
            native, groups = self._of_image[key]
        return MaskContext(
            self._keeps[site.part].to(call.q.device),  # another one where layers are on several
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
        """The call's terms and the biases that the network adds to the scores, without its masks; −inf for tokens that
        it did not select. Raises NotSupported unless those are the masks that were found when it was loaded."""
        blocked, terms = None, call.terms
        for added in call.added:
            if any(is_part_of(added, given) for given, _ in self._given):
                continue
            cells, bias = split(added)
            if cells is not None:
                blocked = cells if blocked is None else blocked | cells
            if bias is not None:
                terms = replace(terms, bias=bias if terms.bias is None else terms.bias + bias)
        if site.selects and blocked is not None:
            # never among the cells that its masks block: when a mask is lifted, all of them are attended to
            unchosen = blocked & site.native.over(self._keeps[site.part], blocked.shape[-2])
            bias = torch.zeros((), device=unchosen.device) if terms.bias is None else terms.bias
            return replace(terms, bias=torch.where(unchosen, float("-inf"), bias))
        if not site.selects and (blocked is not None or site.masks_itself):
            self._check_masks(site, call, blocked)
        return terms

    def _check_masks(self, site: Site, call: Call, blocked: Tensor | None) -> None:
        keep = self._keeps[site.part]
        real = self._keeps["decoder" if site.part == "cross" else site.part]
        queries = real[:, real.shape[1] - call.q.shape[2] :]
        expected = ~site.native.over(keep, call.q.shape[2])
        blocked = expected.new_zeros(1, 1, 1, 1) if blocked is None else blocked
        wanted = blocked | expected if not site.masks_itself else blocked
        if differs(wanted, expected, queries):
            problem = msg(OWN_MASK)
            raise NotSupported(msg("on {count} tokens {problem}", count=call.k.shape[2], problem=problem))
