"""Circuits in Python and notebooks: activation patching of runs, OV and QK circuits and composition of a model."""

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from model.base import Model
from model.circuits import ov_qk
from model.circuits.ov_qk import OVCircuit, QKCircuit
from model.circuits.patching import Patch, PatchMetric, PatchPair
from model.errors import index, items
from model.heads.view import head_name
from model.inference.calls import continuation_ids
from model.trace import Trace
from unmask.pictures import Picture, table_picture
from viz import circuits as pictures
from viz.circuits import PatchView, patch_grid, patch_sentence, patch_table
from viz.html import fixed, tag

Token = str | int  # a text, whose first token it is, or an id


class Patchable:
    """What a run of a decoder offers besides."""

    model: Model
    trace: Trace
    row: int

    def patch(
        self,
        other: "Patchable",
        *,
        answer: Token | None = None,
        instead_of: Token | None = None,
        query: int | None = None,
    ) -> Picture:
        """This run with each head's output in turn taken from another run of the model with the same number of tokens.
        Its numbers are float32 [L,H], by how much the logit of answer, less that of instead_of, rises after the token
        at position query; without instead_of, the log-probability of answer. By default, answer is the other run's most
        likely token and query this row's last position. Both runs keep their own masks.

        Raises ValueError for texts of different lengths and a token or position that is not there.
        """
        if not isinstance(other, Patchable) or other.model is not self.model:
            raise ValueError(f"expected another run of {self.model.name}, got {other!r:.80}")
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
        line = patch_sentence(view)
        axes = {"layer": _layer_numbers(model), "head": range(model.num_heads)}
        return table_picture(line, view, values, [tag("p", line), patch_grid(view), patch_table(view)], axes)


class Circuits:
    """What a model's weights say of its heads, without a text. Its methods raise NotSupported, a ValueError, for other
    architectures than GPT-2's and Llama's."""

    model: Model

    def ov(self, layer: int, head: int, tokens: str | Sequence[int] = ()) -> Picture:
        """What attending to each of these tokens adds to every next token's logit: its numbers are float32 [N,V]; its
        view has the copying score too. tokens: a text or ids; by default those the head acts on most."""
        found = ov_qk.ov(self.model, layer, head, _ids(self.model, tokens))
        line = f"{self._name(layer, head)}: OV circuit, copying score {fixed(found.copying, 2)}"
        return _circuit(line, found, ("attended to", "raises", "lowers"))

    def qk(self, layer: int, head: int, tokens: str | Sequence[int] = (), distance: int = 0) -> Picture:
        """Which keys each of these query tokens prefers: its numbers are float32 [N,V]; its view has the profile of
        scores by distance too. tokens: as ov's, by default those with the strongest preferences. distance: of
        rotary positions, how many tokens before the query the keys are, 0 to 63."""
        found = ov_qk.qk(self.model, layer, head, _ids(self.model, tokens), distance)
        line = f"{self._name(layer, head)}: QK circuit. {pictures.profile_sentence(found.profile)}"
        return _circuit(line, found, ("query", "prefers", "avoids"))

    def composition(self) -> Picture:
        """Q-, K- and V-composition of every head with every earlier one: its numbers are float32 [3,L,H,L,H], the later
        head first, minus what random matrices give; NaN where the other head is not earlier."""
        found, layers = ov_qk.composition(self.model), _layer_numbers(self.model)
        kinds = zip(ov_qk.KINDS, found, strict=True)
        said = [pictures.composition_sentence(some, kind, layers) for kind, some in kinds]
        body: list[Markup] = []
        for words, some in zip(said, found, strict=True):
            body += [tag("p", words), pictures.composition_table(some, layers=layers)]
        heads = range(self.model.num_heads)
        axes = {"input": ov_qk.KINDS, "layer": layers, "head": heads, "read layer": layers, "read head": heads}
        return table_picture(f"{self.model.name}: {said[1]}", found, found, body, axes)

    def _name(self, layer: int, head: int) -> str:
        return head_name(self.model.describe().layer_number("self", layer), head)


def _circuit(line: str, found: OVCircuit | QKCircuit, titles: tuple[str, str, str]) -> Picture:
    return table_picture(
        line, found, found.effects, [tag("p", line), pictures.circuit_table(found.tokens, *titles)], {}
    )


def _layer_numbers(model: Model) -> list[int]:
    return [model.describe().layer_number("self", layer) for layer in range(model.num_layers)]


def _token(model: Model, given: Token) -> int:
    if isinstance(given, str):
        return continuation_ids(model, given)[0][0]
    return index("token", given, model.vocabulary)


def _ids(model: Model, tokens: str | Sequence[int]) -> list[int]:
    given = continuation_ids(model, tokens)[0] if isinstance(tokens, str) else items("a text or token ids", tokens)
    return list(dict.fromkeys(_token(model, one) for one in given))
