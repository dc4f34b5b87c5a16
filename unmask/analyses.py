"""Analyses of one run, as on the pages of the app, and circuits of a model: they display themselves in a notebook.

Queries and keys are positions of tokens, even if tokens are merged.
Sizes: L layers, H heads, T tokens, D head width, W model width, V vocabulary.
"""

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from markupsafe import Markup

from model.attribution.score_split import carried, direct_effect, score_split
from model.base import Model
from model.circuits import ov_qk
from model.circuits.ov_qk import OVCircuit, QKCircuit
from model.circuits.patching import Patch, PatchMetric, PatchPair
from model.errors import index, items
from model.heads.ablation import AblatedHeads, TargetPrediction, answer, layer_effects, next_token_id, outcome
from model.heads.layers import MAX_POSITIONS, How, layer_maps, logit_lens, token_flow
from model.heads.view import HeadView, head_name
from model.inference.calls import continuation_ids
from model.mask_kinds import NEAR, OF_IMAGES
from model.masks import MaskSpec
from model.network_state import NetworkState
from model.spec import OFF
from model.trace import Trace
from unmask.masks import expect_text, spec_of
from unmask.pictures import HeadPicture, Picture, head_picture, table_picture
from unmask.sources import HeadSource, pairs_of
from viz.ablation import EffectsView, effects_table, ranking_sentence
from viz.circuits import (
    PatchView,
    circuit_table,
    composition_sentence,
    composition_table,
    patch_grid,
    patch_sentence,
    patch_table,
    profile_sentence,
)
from viz.heads.attribution import (
    contribution_sentence,
    contributions_table,
    effect_table,
    largest_dimensions,
    pairs_table,
    sources_table,
    sum_words,
)
from viz.heads.cells import weight_text
from viz.html import fixed, signed, tag
from viz.layers import column_names, key, lens_table
from viz.numbers import Candidate, next_token_table

if TYPE_CHECKING:
    import pandas as pd

TRAINED = (
    "the network's weights have changed since this run, which needs those it had: run the text again, or read "
    "run.losses before you train, after which it keeps them"
)
Token = str | int  # a text, of which the first token counts (" dog"), or an id


class Analyses(HeadSource):
    """Analyses of a run's `row`, the one that is shown. last: its last real token. labels: of its queries."""

    model: Model
    trace: Trace
    row: int
    network: Any
    weights: NetworkState | None
    last: int
    labels: list[str]

    @property
    def logits(self) -> np.ndarray:
        """The logits, float32 [T,V], of the row. Raises ValueError for an encoder's attention."""
        self._expect_same_weights()
        self._expect_target("logits")
        return self.trace.logits[self.row].cpu().numpy()

    def residual(self, layer: int) -> np.ndarray:
        """Return the residual stream, float32 [T,W], of an encoder-decoder its decoder's: 0 is the input of the first
        layer, n the output of the n-th, before any final norm. Raises ValueError for a layer that does not exist, for
        an encoder's attention, and (NotSupported) if the model's stream is not known."""
        self._expect_same_weights()
        self._expect_target("residual stream")
        streams = self.model.residuals(self.trace.batch.rows([self.row]), self.trace.spec).streams
        return streams[index("layer", layer, len(streams))][0].float().cpu().numpy()

    def logit_lens(self, begin: int | None = None, end: int | None = None) -> Picture:
        """Return what each layer would predict after each token (nostalgebraist 2020), for positions begin up to, but
        not including, end; by default the last 128 of the row. Its numbers: the probability of the actual next token,
        float32 [L+1, positions], NaN where there is none. Raises ValueError for a model that predicts no next token."""
        self._expect_predictions()
        real, tokens = self.trace.batch.real(self.row), self._predicting
        stop = real.stop if end is None else index("stop", end, len(tokens) + 1)
        begin = max(real.start, stop - MAX_POSITIONS) if begin is None else index("query", begin, len(tokens))
        end = min(begin + MAX_POSITIONS, stop) if end is None else stop
        found = logit_lens(self.model, self.trace.batch, self.trace.spec, self.row, range(begin, end))
        labels = {position: tokens[position] for position in range(begin, end)}
        settled = column_names(found.settled(end - begin - 1) + 1)[-1]
        line = f"logit lens: after {labels[end - 1]} the prediction is the model's from {settled} on"
        axes = {"reading": column_names(len(found.ids)), "position": range(begin, end)}
        body = [Markup(lens_table(found, labels, end - 1)), key(compared=False)]
        return table_picture(line, found, found.next_probabilities, body, axes)

    def rollout(self, layer: int = -1, how: How = "rollout") -> HeadPicture:
        """Combine all heads of a layer, [T,T]: their mean or maximum, or attention rollout up to the end of the layer
        (Abnar and Zuidema 2020). Raises ValueError for a text that is too long, and for cross-attention."""
        if how not in get_args(How):
            raise ValueError(f"expected one out of {', '.join(get_args(How))}, got {how!r:.80}")
        layers = self.trace.num_layers
        layer = index("layer", layer, layers, first=-layers, numbers=self.numbers) % layers
        view = layer_maps(self.trace, self.row, self.trace.spec, how, self.by).view(layer)
        return head_picture("heatmap", [f"{how}, {self.named(layer)}"], [view], self.query, self.title)

    def flow(self, query: int | None = None) -> HeadPicture:
        """Return attention flow (Abnar and Zuidema 2020) of a query to each token by the end of each layer, [L,T]."""
        query = self._query(query)
        flows = token_flow(self.trace, self.row, self.trace.spec, query)
        names = [self.named(layer) for layer in range(len(flows))]
        blocked = layer_maps(self.trace, self.row, self.trace.spec, "mean").blocked_from(query, flows)
        view = HeadView(flows, np.full_like(flows, np.nan), blocked, names, self.labels, layers=True)
        name = f"attention flow of {self.labels[query]} ({query})"
        axes = {"layer": self.numbers or range(len(names)), "key": range(len(self.labels))}
        title = self.merged("tokens").title
        return head_picture("heatmap", [name], [view], len(names) - 1, title, across=True, axes=axes)

    def ablate(
        self,
        heads: Sequence[tuple[int, int]],
        way: Literal["zero", "mean", "mask"] = "zero",
        *,
        mask: MaskSpec | dict[str, Any] | None = None,
        query: int | None = None,
        target: Token | None = None,
    ) -> Picture:
        """Run the row with these heads off, and show what it predicts after a query. way: their output is "zero", their
        "mean" over the text, or what it is under another `mask` (as `run` takes it), by default with only the token
        itself allowed. target: a text (its first token) or an id, by default the actual next token, or the most likely
        one. Its numbers: losses, float32 [T], nats."""
        query, before = self._asked(query, target)
        alone = OFF.replace(**{NEAR: 1}) if way == "mask" else None  # without the run's layers, sinks and strokes
        spec = alone if mask is None else spec_of(self.model.standard, mask)
        expect_text(spec or self.trace.spec, self.trace.batch)
        pairs = pairs_of(heads)
        for layer, head in pairs:
            self._check(layer, head)
        once = dict.fromkeys((int(layer), int(head)) for layer, head in pairs)
        off = AblatedHeads(tuple(once), way, spec, self.trace.name)
        run = (self.model, self.trace.batch, self.trace.spec, self.row, query)
        found = outcome(*run, off, before.target)
        everyone = outcome(*run, AblatedHeads((), attention=self.trace.name), before.target)
        names = ", ".join(self.named(*pair) for pair in off.heads) or "no head"
        was, now = (0.0 - some.log_probability for some in (before, found))  # 0.00 for a certain target, not -0.00
        change = f"{was:.2f} → {now:.2f} nats"
        line = f"{names} off ({way}): loss of {found.label} after {self._predicting[query]} {change}"
        tables = [[Candidate(*one) for one in some.candidates] for some in (found, everyone)]
        body = [Markup(next_token_table(*tables, changed=True, names=("heads off", "all heads on")))]
        return table_picture(line, found, found.losses, body, {"position": range(len(found.losses))})

    def ablation(
        self, way: Literal["zero", "mean"] = "zero", *, query: int | None = None, target: Token | None = None
    ) -> Picture:
        """Turn each head off alone: the increase in the loss of the target after the query, in nats, float32 [L,H].
        Runs as many rows as there are heads. The arguments are those of `ablate`."""
        if way not in ("zero", "mean"):
            raise ValueError(f"expected a way out of zero, mean, got {way!r:.40}")
        query, before = self._asked(query, target)
        off, layers = AblatedHeads((), way, None, self.trace.name), self.trace.num_layers
        run = (self.model, self.trace.batch, self.trace.spec, self.row, query, before.target)
        effects = np.stack([layer_effects(*run, layer, off) for layer in range(layers)])
        view = EffectsView(effects, self.numbers or range(layers), frozenset())
        line = f"heads off ({way}), one at a time: loss of {before.label} after {self._predicting[query]}"
        body = [tag("p", ranking_sentence(view)), effects_table(view)]
        return table_picture(line, view, effects, body, self.axes_of(effects))

    def score_split(self, layer: int, head: int, query: int, key: int) -> Picture:
        """Split one score by what wrote the query and the key, float64 [S,S]; by dimension, [D], if the split by source
        is not exact."""
        self._check(layer, head)
        self._expect_same_weights()
        query, key = self._query(query), index("key", key, len(self._keys))
        found = score_split(self.model, self.trace, self.row, layer, head, query, key)
        stages = self.trace.stages(layer, head, self.row)
        masks = self.trace.blocked_by(layer, self.row, head=head)
        names = f"{query}: {self.labels[query]}", f"{key}: {self._keys[key]}"
        cell: dict[str, Any] = {"score": float(stages.scaled[query, key])}
        cell |= {"weight": weight_text(float(stages.weights[query, key]))}
        cell |= {"blocked": [name for name, mask in masks.items() if mask[query, key]]}
        body = [tag("p", sum_words(found, *names, **cell)), tag("p", largest_dimensions(found))]
        line = f"{self.named(layer, head)}: the score of {names[0]} on {names[1]} is {signed(found.score)}"
        line += f"; {signed(cell['score'])} goes into the softmax" if found.added or found.softcap else ""
        if found.terms is None or found.sources is None:
            body.append(tag("p", found.why_not))
            return table_picture(line, found, found.by_dimension, body, {"dimension": range(len(found.q))})
        body += map(Markup, (pairs_table(found), sources_table(found, "query"), sources_table(found, "key")))
        return table_picture(line, found, found.terms, body, {"query": found.sources, "key": found.sources})

    def value_weighted(self, layer: int, head: int, query: int | None = None) -> Picture:
        """Return weight × norm of the value for each key of a query (Kobayashi et al. 2020), float32 [K], and what each
        adds to the residual stream."""
        self._check(layer, head)
        self._expect_same_weights()
        query = self._query(query)
        found = carried(self.model, self.trace, self.row, self.trace.spec, layer, head, query)
        line = f"{self.named(layer, head)}: weight × |v| of {self.labels[query]} ({query})"
        words = contribution_sentence(found, f"{query}: {self.labels[query]}", self._keys)
        body = [Markup(words), Markup(contributions_table(found, self._keys))]
        return table_picture(line, found, found.moved, body, {"key": range(len(self._keys))})

    def direct_effect(self, layer: int, head: int, query: int | None = None) -> Picture:
        """Return the next tokens that a head promotes and suppresses, bypassing all later layers: logits relative to
        its mean effect, float32, of the 8 most promoted and the 8 most suppressed. Raises ValueError (NotSupported) if
        what it adds is not known."""
        self._check(layer, head)
        self._expect_same_weights()
        query = self._query(query)
        found = direct_effect(self.model, self.trace, self.row, self.trace.spec, layer, head, query)
        tokens = [*found.up, *reversed(found.down)]
        most = f"{tokens[0][0]} most" if tokens else "none"
        line = f"{self.named(layer, head)}: direct effect on what follows {self.labels[query]}: {most}"
        effects = np.array([value for _, value in tokens], np.float32)
        axes = {"token": [label for label, _ in tokens]}
        return table_picture(line, found, effects, [Markup(effect_table(found))], axes)

    def patch(
        self,
        other: "Analyses",
        *,
        answer: Token | None = None,
        instead_of: Token | None = None,
        query: int | None = None,
    ) -> Picture:
        """Replace each head's output in turn in this run (B) by that in another run (A) with the same number of tokens.
        Its numbers, float32 [L,H]: the increase of the logit of answer, less that of instead_of, after the token at
        position query; without instead_of, of the log-probability of answer. By default, answer is the other run's most
        likely token and query this row's last position. Both runs keep their own masks.

        Raises ValueError for texts of different lengths and a token or position that does not exist.
        """
        if not isinstance(other, Analyses) or other.model is not self.model:
            raise ValueError(f"expected another run of this {self.model.name}, loaded once for both, got {other!r:.80}")
        for run in (self, other):
            run._expect_same_weights()
        model, real = self.model, self.trace.batch.real(self.row)
        pair = PatchPair(model, other.trace, other.row, self.trace, self.row)
        query = real.stop - 1 if query is None else index("query", query, real.stop, first=real.start)
        found = pair.likeliest(query)[0] if answer is None else _token(model, answer)
        metric = PatchMetric(query, found, None if instead_of is None else _token(model, instead_of))
        each = [[[Patch("head", layer, head)] for head in range(model.num_heads)] for layer in range(model.num_layers)]
        values = np.stack([pair.effects(metric, patches) for patches in each])
        columns, unit = [f"H{head}" for head in range(model.num_heads)], "nats" if instead_of is None else "logits"
        layers = [head_name(number) for number in _layer_numbers(model)]
        view = PatchView(values, layers, columns, unit, pair.measured(metric), ("A", "B"))
        target = " − ".join(f"“{model.label(one)}”" for one in (found, metric.instead_of) if one is not None)
        line = f"{target} after {self._predicting[query]}: {patch_sentence(view)}"
        axes = {"layer": _layer_numbers(model), "head": range(model.num_heads)}
        return table_picture(line, view, values, [tag("p", line), patch_grid(view), patch_table(view)], axes)

    def to_dataframe(self) -> "pd.DataFrame":
        """Return a row for each head: its layer and head, and its measures."""
        import pandas as pd

        layers, heads = np.indices((self.trace.num_layers, self.trace.num_heads)).reshape(2, -1)
        shown = [self.numbers[layer] for layer in layers] if self.numbers else layers
        return pd.DataFrame({"layer": shown, "head": heads} | {name: m.ravel() for name, m in self.measures().items()})

    def _heads(self, layer: int, name: Literal["q", "k", "v"]) -> np.ndarray:
        record = self.trace.layers[index("layer", layer, self.trace.num_layers, numbers=self.numbers)]
        return getattr(record, name)[self.row].float().cpu().numpy().copy()

    @property
    def _keys(self) -> list[str]:
        return list(self.trace.keys.pieces[self.row])

    @property
    def masks_by_scope(self) -> dict[str, list[str]]:
        """The masks that are on in at least one layer and head, under the key "". If the run's masks apply to some
        layers or heads and others are on in the rest, the keys are " in L1" and " elsewhere". An image's own mask is
        left out: ImageRun names it."""
        trace, layers, some = self.trace, self.trace.spec.layers, self.trace.spec.heads
        heads = {head in some: head for head in range(trace.num_heads if some else 1)}  # one head of each kind
        found: dict[bool, dict[str, Any]] = {}
        for layer, head in product(range(trace.num_layers), heads.values()):
            here = trace.spec.holds_in(layer, head)
            names = trace.layers[layer].context.names(trace.spec, head)
            found.setdefault(here, {}).update({name: True for name in names if name != OF_IMAGES})
        if len({*map(frozenset, found.values())}) == 1:
            return {"": list(next(iter(found.values())))}
        parts = (f"H{head}" for head in sorted(some)), map(self.named, sorted(layers))
        scope = " of ".join(filter(None, map(", ".join, parts)))
        return {f" in {scope}": list(found[True]), " elsewhere": list(found[False])}

    @property
    def predicts(self) -> bool:
        """Whether it has losses and next tokens: an encoder has none."""
        return self.model.kind != "encoder" and self.model.predicts

    @property
    def _predicting(self) -> tuple[str, ...]:
        """The tokens after which it predicts, whichever attention is shown."""
        return self.trace.batch.pieces[self.row]

    def _expect_same_weights(self) -> None:
        if self.weights is not None and self.weights.changed:
            raise ValueError(TRAINED)

    def _expect_predictions(self) -> None:
        self._expect_same_weights()
        if not self.predicts:
            raise ValueError(f"expected a model that predicts next tokens, got {self.model.name}, {self.model.kind}")

    def _expect_target(self, what: str) -> None:
        """Check the attention. Raises ValueError for an encoder's: its tokens are the source's, not the target's."""
        if self.trace.name == "encoder":
            raise ValueError(f"expected the decoder's or cross attention for its {what}, got the encoder's")

    def _query(self, query: int | None) -> int:
        return self.last if query is None else index("query", query, len(self.labels))

    def _check(self, layer: int, head: int) -> None:
        index("layer", layer, self.trace.num_layers, numbers=self.numbers)
        index("head", head, self.trace.num_heads)

    def _asked(self, query: int | None, target: Token | None) -> tuple[int, TargetPrediction]:
        """Return the query, and the prediction of the target after it with all heads on."""
        self._expect_predictions()
        batch, last = self.trace.batch, self.trace.batch.real(self.row).stop - 1
        query = last if query is None else index("query", query, batch.ids.shape[1])
        found = _token(self.model, target) if isinstance(target, str) else target
        found = next_token_id(batch, self.row, query) if found is None else found
        return query, answer(self.model, self.trace, self.row, query, found)


class Circuits:
    """Analyses of a model's weights, without a text. The methods raise NotSupported, a ValueError, for other
    architectures than GPT-2's and Llama's."""

    model: Model

    def ov(self, layer: int, head: int, tokens: str | Sequence[int] = ()) -> Picture:
        """Return what attending to each of these tokens adds to every next token's logit: its numbers are float32
        [N,V]; its view has the copying score too. tokens: a text or ids; by default those the head acts on most."""
        found = ov_qk.ov(self.model, layer, head, _ids(self.model, tokens))
        line = f"{self._name(layer, head)}: OV circuit, copying score {fixed(found.copying, 2)}"
        return _circuit(line, found, ("attended to", "raises", "lowers"))

    def qk(self, layer: int, head: int, tokens: str | Sequence[int] = (), distance: int = 0) -> Picture:
        """Return which keys each of these query tokens prefers: its numbers are float32 [N,V]; its view has the profile
        of scores by distance too. tokens: as for ov, by default those with the strongest preferences. distance: with
        rotary positions, how many tokens before the query the keys are, 0 to 63."""
        found = ov_qk.qk(self.model, layer, head, _ids(self.model, tokens), distance)
        line = f"{self._name(layer, head)}: QK circuit. {profile_sentence(found.profile)}"
        return _circuit(line, found, ("query", "prefers", "avoids"))

    def composition(self) -> Picture:
        """Return Q-, K- and V-composition of every head with every earlier one: its numbers are float32 [3,L,H,L,H],
        the later head first, minus the value for random matrices; NaN where the other head is not earlier."""
        found, layers = ov_qk.composition(self.model), _layer_numbers(self.model)
        kinds = zip(ov_qk.KINDS, found, strict=True)
        sentences = [composition_sentence(some, kind, layers) for kind, some in kinds]
        body: list[Markup] = []
        for words, some in zip(sentences, found, strict=True):
            body += [tag("p", words), composition_table(some, layers=layers)]
        heads = range(self.model.num_heads)
        axes = {"input": ov_qk.KINDS, "layer": layers, "head": heads, "read layer": layers, "read head": heads}
        return table_picture(f"{self.model.name}: {sentences[1]}", found, found, body, axes)

    def _name(self, layer: int, head: int) -> str:
        return head_name(self.model.describe().layer_number("self", layer), head)


def _circuit(line: str, found: OVCircuit | QKCircuit, titles: tuple[str, str, str]) -> Picture:
    axes = {"token": [one.token for one in found.tokens], "id": range(found.effects.shape[1])}
    return table_picture(line, found, found.effects, [tag("p", line), circuit_table(found.tokens, *titles)], axes)


def _layer_numbers(model: Model) -> list[int]:
    return [model.describe().layer_number("self", layer) for layer in range(model.num_layers)]


def _token(model: Model, given: Token) -> int:
    if isinstance(given, str):
        ids, _ = continuation_ids(model, given)
        if not ids:
            raise ValueError(f"expected a text of at least one token, got {given!r:.80}")
        return ids[0]
    return index("token", given, model.num_ids)


def _ids(model: Model, tokens: str | Sequence[int]) -> list[int]:
    given = continuation_ids(model, tokens)[0] if isinstance(tokens, str) else items("a text or token ids", tokens)
    return list(dict.fromkeys(_token(model, one) for one in given))
