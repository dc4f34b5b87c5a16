"""A transformers run with its norms frozen: what its heads read and write, computed by the network's own layers.

Works for any architecture: each layer is called again on parts of its input, and the results are used only if they sum
to the run's own values. Sizes: N parts, P positions, T tokens, W width, H heads, D head width, V vocabulary.
"""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from i18n import N_, msg
from model.attribution import linearized_run as attribution
from model.blocks import positions_under
from model.errors import NotSupported, first_line
from model.heads.view import head_name
from model.huggingface.attention_hook import AttentionReached, ScriptedAttention
from model.huggingface.probe import Site, layer_numbers, parts_beside
from model.huggingface.recording import NO_LIST, FrozenNorms, ResidualHooks, ResidualStreams, Uncapped, residuals
from model.huggingface.stacks import Inputs, Replacement, Stacks, intercepted
from model.trace import Trace

SLOTS = 32  # positions in a call of a probe
NO_SUM = N_("What its heads add to the residual stream is not a sum over heads")
ROUNDED = N_("What each of its heads adds to the residual stream is lost in the rounding of {dtype}: choose float32")
TOLERANCE = 1e-4  # of the largest number: the rounding of float32 through a layer
APART = N_("There are other operations between its layers, so its residual stream is not the sum of what they add")
NORMED = N_("Its layers do more than add to the residual stream, so what a part wrote changes later")
UNSEEN = N_("The output of its heads does not leave the layer through the module in which it was found")


class _ZeroModule(Replacement):
    """A replacement that returns zeros in the shapes of the module's output."""

    def forward(self, *arguments: Any, **options: Any) -> Any:
        if type(self.replaced) is nn.Linear:  # a subclass, a router for example, may return more
            return arguments[0].new_zeros(*arguments[0].shape[:-1], self.replaced.out_features)
        return _zeros(self.replaced(*arguments, **options))


def _zeros(value: Any) -> Any:
    if isinstance(value, Tensor):
        return torch.zeros_like(value)
    return type(value)(_zeros(one) for one in value) if isinstance(value, tuple | list) else value


def _with_norms_only(module: nn.Module) -> nn.Module:
    """Return a copy in which only norms compute; everything else returns zeros."""
    if "norm" in type(module).__name__.lower():
        return module
    if next(module.parameters(recurse=False), None) is not None:
        return _ZeroModule(module)
    shadow = copy.copy(module)
    shadow._modules = {
        name: child if child is None else _with_norms_only(child) for name, child in module._modules.items()
    }
    return shadow


class LayerProbe:
    """Calls of single layers of a network on slots that all have the same position of a text.

    Attention returns prepared outputs, so slots do not influence each other. A layer can thus compute, for many parts
    of a stream, the query that each makes, or for many head outputs, what each adds to the stream. Sizes: N parts, n
    slots.
    """

    def __init__(
        self, stack: Stacks, hooks: ResidualHooks, token: int, position: int, *, custom_attention: bool
    ) -> None:
        """token: any id."""
        self._slots = min(SLOTS, stack.context())
        self._run = ScriptedAttention([self._slots])
        self._run.custom_attention = custom_attention
        ids = torch.full((1, self._slots), token, device=stack.network.device)
        self._run.positions = torch.full_like(ids, position)
        with hooks.reading() as read:
            stack.states(self._run, Inputs(ids, torch.ones_like(ids, dtype=torch.bool)))
        self._layers = read.layers
        self._attention_alone: dict[int, nn.Module] = {}

    def heads(self, number: int, whole: Tensor, parts: Tensor) -> tuple[Tensor, Tensor]:
        """Return q [N,H,D] and k [N,Hkv,D] of a layer for parts [N,W] of the stream `whole` [W], with frozen norms."""
        x = self._filled(whole)
        kept, _ = self._call(number, x, None, None)
        found = []
        for some in parts.split(self._slots):
            self._call(number, self._padded(some), None, kept)
            assert self._run.call is not None
            found.append([part[0].transpose(0, 1)[: len(some)] for part in (self._run.call.q, self._run.call.k)])
        q, k = (torch.cat(some).double().cpu() for some in zip(*found, strict=True))
        return q, k

    def adds(
        self, number: int, attention: nn.Module | None, x: Tensor, whole: Tensor, parts: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return a layer's output [N,W] on the stream x [W] without its MLP, with frozen norms and its heads' outputs
        `whole` [H,D] replaced by parts [N,H,D]; and its output [W] where the stream and the heads' outputs are 0."""
        if number not in self._attention_alone:  # only the child with the attention, and norms, compute
            layer = self._layers[number].module
            alone = self._attention_alone[number] = copy.copy(layer)
            alone._modules = dict(layer._modules)
            for name, child in layer.named_children():
                if not any(one is attention for one in child.modules()):
                    alone._modules[name] = _with_norms_only(child)
        filled, alone = self._filled(x), self._attention_alone[number]
        kept, _ = self._call(number, filled, self._filled(whole), None, alone)
        found = []
        for some in parts.split(self._slots):
            _, made = self._call(number, filled, self._padded(some), kept, alone)
            found.append(made[0, : len(some)])
        nothing = self._filled(torch.zeros_like(whole))
        _, ground = self._call(number, torch.zeros_like(filled), nothing, kept, alone)
        return torch.cat(found).double().cpu(), ground[0, 0].double().cpu()

    def _call(
        self, number: int, x: Tensor, outputs: Tensor | None, kept: list[Tensor] | None, module: nn.Module | None = None
    ) -> tuple[list[Tensor], Tensor]:
        """Return the norms' deviations and the layer's output; without head outputs, the call ends at the attention."""
        run, layer = self._run, self._layers[number]
        run.outputs, run.ends = outputs, outputs is None
        with intercepted(run, layer.module, 1), FrozenNorms(kept) as norms:
            try:
                made = layer.again(x.clone(), module or layer.module)
            except AttentionReached:
                made = x
            except Exception as error:  # noqa: BLE001 - a third-party layer may raise anything
                why = f"{type(error).__name__}: {first_line(error)}"
                raise NotSupported(msg("Its layers cannot be called one by one ({why})", why=why)) from None
        return norms.kept, made

    def _filled(self, one: Tensor) -> Tensor:
        """Repeat a tensor in every slot: [..] -> [1,n,..]."""
        return self._padded(one.expand(self._slots, *one.shape))

    def _padded(self, some: Tensor) -> Tensor:
        """Pad with zeros to the number of slots: [N,..] -> [1,n,..]."""
        weight = next(self._layers[0].module.parameters())
        result = weight.new_zeros(1, self._slots, *some.shape[1:])
        result[0, : len(some)] = some
        return result


class FrozenNetwork(attribution.LinearizedRun):
    """One row of a run, computed alone, with its norms frozen."""

    def __init__(
        self, stack: Stacks, hooks: ResidualHooks, sites: Sequence[Site], read: ResidualStreams, trace: Trace
    ) -> None:
        """read, trace: of a batch of one row. sites: the attention of each of its layers."""
        numbers = layer_numbers([site.location for site in sites])
        if numbers is None:
            raise NotSupported(msg(NO_LIST))
        self._final = residuals(read, trace.states).final
        leaving = read.streams[1:]
        if any(not torch.equal(left, came) for left, came in zip(leaving, read.entered[1:], strict=False)):
            raise NotSupported(msg(APART))
        if len(read.layers) != len(leaving) or max(numbers) >= len(leaving):
            raise NotSupported(msg(NO_LIST))
        self._stack, self._hooks, self._read, self._trace = stack, hooks, read, trace
        self._numbers = numbers  # positions in the network's list of layers
        self._attentions = {number: site.module for number, site in zip(numbers, sites, strict=True)}
        self._own_code = any(site.custom_attention for site in sites)
        self._positions = positions_under(trace.spec, trace.batch)[0].tolist()
        self._probes = dict[int, LayerProbe]()
        self._found = dict[tuple[int, int], tuple[Tensor, Tensor]]()

    @torch.inference_mode()
    def stream(self, positions: Sequence[int], layer: int | None) -> attribution.Stream:
        positions, streams = list(positions), self._read.streams
        last = len(streams) - 1 if layer is None else self._numbers[layer]
        names, parts = self._embedded(positions)
        biases = torch.zeros_like(parts[0])
        for number in range(last):
            left = (streams[number + 1] - streams[number])[0, positions].double().cpu()
            if number in self._numbers:
                found = [self._written(self._numbers.index(number), position) for position in positions]
                heads, bias = (torch.stack(some) for some in zip(*found, strict=True))  # [P,H,W], [P,W]
                parts += heads.unbind(1)
                names += [head_name(number, head) for head in range(heads.shape[1])]
                biases += bias
                left = left - heads.sum(1) - bias
            parts.append(left)
            others = parts_beside(self._read.layers[number].module, self._attentions.get(number))
            names.append(msg("{layer} {parts}", layer=head_name(number), parts=others))
        return attribution.Stream((*names, attribution.BIASES), torch.stack([*parts, biases]))

    @torch.inference_mode()
    def q_and_k(self, layer: int, position: int, parts: Tensor) -> attribution.QKContributions:
        number = self._numbers[layer]
        whole = self._read.streams[number][0, position]
        nothing = torch.zeros(1, len(whole), dtype=parts.dtype)
        q, k = self._probe(position).heads(number, whole, torch.cat([nothing, parts]))
        return attribution.QKContributions(q[1:] - q[0], k[1:] - k[0], q[0], k[0])

    @torch.inference_mode()
    def write(self, layer: int, position: int, outputs: Tensor) -> Tensor:
        self._written(layer, position)  # raises NotSupported where the heads' contributions are unknown
        made, _ = self._adds(layer, position, torch.cat([torch.zeros_like(outputs[:1]), outputs]))
        return made[1:] - made[0]

    @torch.inference_mode()
    def logits(self, position: int, parts: Tensor) -> Tensor:
        last = self._read.streams[-1][0, position]
        parts = parts.to(last)
        given = torch.cat([torch.zeros_like(last)[None], last[None], (last - parts.sum(0))[None], parts])[None]
        with FrozenNorms() as norms:
            self._final(last.expand_as(given))
        with FrozenNorms(norms.kept):
            states = self._final(given)
        with Uncapped(self._trace.readout(states[:, :1]).shape[-1]) as head:
            made = self._trace.readout(states)[0].double().cpu()  # [3+N,V]
        self.caps_logits = head.capped
        nothing, whole, rest = made[:3]
        each: Tensor = made[3:] - nothing
        if not _near(rest + each.sum(0), whole):
            raise NotSupported(msg("Its logits are not linear in its last hidden states"))
        return each

    def _embedded(self, positions: list[int]) -> tuple[list[str], list[Tensor]]:
        """Split the first layer's input into token and position embeddings if the network has an embedding for both."""
        entering = self._read.streams[0][0, positions].double().cpu()
        tables = [made for module, _, made in self._read.before if isinstance(module, nn.Embedding)]
        rows = [one.reshape(-1, one.shape[-1])[positions].double().cpu() for one in tables]
        if not rows or any(one.shape != entering.shape for one in rows):
            return [attribution.EMBEDDING], [entering]
        factor = float((rows[0] * entering).sum() / rows[0].square().sum())  # Gemma scales its token embeddings
        if len(rows) == 1 and _near(rows[0] * factor, entering):
            return [attribution.TOKEN], [entering]
        if len(rows) == 2 and _near(rows[0] + rows[1], entering):
            return [attribution.TOKEN, attribution.POSITION], [rows[0], entering - rows[0]]
        return [attribution.EMBEDDING], [entering]

    def _written(self, layer: int, position: int) -> tuple[Tensor, Tensor]:
        """Return what each head of a layer adds to the stream at a position, float64 [H,W], and its bias, [W]."""
        if (layer, position) in self._found:
            return self._found[layer, position]
        whole = self._outputs(layer, position)
        heads = torch.diag_embed(whole.T).permute(1, 2, 0)  # [H,D] -> [H,H,D], one head's output at a time
        made, bias = self._adds(layer, position, torch.cat([heads, torch.zeros_like(heads[:1]), whole[None]]))
        x = self._read.streams[self._numbers[layer]][0, position]
        nothing, everything = made[-2], made[-1]
        rounded, dtype = x.dtype != torch.float32, str(x.dtype).removeprefix("torch.")
        x = x.double().cpu()
        if not _near(nothing, x + bias):
            raise NotSupported(msg(ROUNDED, dtype=dtype) if rounded else msg(NORMED))
        each = made[:-2] - nothing
        if whole.any() and not each.any():  # a query that attends to nothing has zero outputs
            raise NotSupported(msg(UNSEEN))
        if not _near(each.sum(0), everything - nothing):
            raise NotSupported(msg(ROUNDED, dtype=dtype) if rounded else msg(NO_SUM))
        self._found[layer, position] = each, bias
        return each, bias

    def _adds(self, layer: int, position: int, outputs: Tensor) -> tuple[Tensor, Tensor]:
        number = self._numbers[layer]
        x, whole = self._read.streams[number][0, position], self._outputs(layer, position)
        return self._probe(position).adds(number, self._attentions[number], x, whole, outputs)

    def _outputs(self, layer: int, position: int) -> Tensor:
        return attribution.head_outputs(self._trace.layers[layer], self._trace, 0, [position])[0]

    def _probe(self, position: int) -> LayerProbe:
        if position not in self._probes:
            token = int(self._trace.batch.ids[0, position])
            self._probes[position] = LayerProbe(
                self._stack, self._hooks, token, self._positions[position], custom_attention=self._own_code
            )
        return self._probes[position]


def _near(found: Tensor, expected: Tensor) -> bool:
    return float((found - expected).abs().max()) <= TOLERANCE * max(float(expected.abs().max()), 1e-6)
