"""Any Hugging Face model through our own attention: a hub id or a folder in, a model like the catalog's out.

Import this only when such a model is chosen: transformers takes seconds to load.
Sizes: B rows, T tokens (S of the source), V vocabulary.
"""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import PreTrainedModel

from i18n import say
from model.base import TRACE_BYTES, Description, HeadEdit, Model, Residuals, once
from model.errors import CheckpointError, NotSupported, Stopped, first_line
from model.huggingface import checkpoint_files, fetching, formats, hub, layers
from model.huggingface.bench import LayerProbe
from model.huggingface.linearized_run import FrozenNetwork, Sited
from model.huggingface.loading import (
    Report,
    check_vocabulary,
    read_network,
    read_tokenizers,
    tokens_of,
)
from model.huggingface.recording import Recording
from model.huggingface.residual import NO_LIST, ResidualHooks, residuals
from model.huggingface.stacks import OneStack, Stacks, TwoStacks, device_of, stacks_of
from model.huggingface.verify import Findings, check_type, examine, refusal
from model.huggingface.weights import OutputHead, head_of
from model.masks import NATIVE, MaskContext, Masking, MaskSpec
from model.text import TokenBatch, check_targets
from model.trace import Attention, Trace
from model.transformer import positions_under
from serving.settings import Settings

LEAST_CONTEXT = 512  # allowed whatever a run keeps
MOST_WRITTEN = 40  # tokens of a target that the model writes itself


class HuggingFaceModel(Model):
    """A network with its tokenizers. Where it was saved without a language-model head, it predicts nothing."""

    network: PreTrainedModel

    def __init__(
        self,
        name: str,
        stacks: Stacks,
        findings: Findings,
        tokenizers: tuple[Tokenizer, Tokenizer],
        *,
        head: OutputHead,
        tokens: int,
    ) -> None:
        """tokenizers: of the texts, and of an encoder-decoder's targets. tokens: the most that a row may have."""
        shown = "decoder" if isinstance(stacks, TwoStacks) else "self"
        layers = [place for place, site in enumerate(findings.sites) if site.part == shown]
        heads, shared = findings.heads[layers[0]]
        most = min(max(LEAST_CONTEXT, TRACE_BYTES // findings.bytes_per_token), tokens)
        super().__init__(
            name,
            num_layers=len(layers),
            num_heads=heads,
            context=min(stacks.context(), most),
            bytes_per_token=findings.bytes_per_token,
            key_value_heads=tuple(head * shared // heads for head in range(heads)),
        )
        self.predicts, self._head = head.predicts, head
        self.network, self._stacks, self._findings = stacks.network, stacks, findings
        self._device = device_of(stacks.network)
        self._residuals = ResidualHooks(
            stacks.decoder if isinstance(stacks, TwoStacks) else stacks.stack, _layers_of(findings, shown)
        )
        self.attentions = tuple(dict.fromkeys(site.part for site in findings.sites))
        if isinstance(stacks, TwoStacks):
            self.kind = "encoder-decoder"
        else:
            self.kind = "decoder" if all(site.causal for site in findings.sites) else "encoder"
        self.standard = MaskSpec(causal=self.kind != "encoder")  # the masks it was trained with
        self._tokens = tokens_of(stacks.network, tokenizers, self.context)

    def encode(self, texts: list[str], pad_side: str = "right", targets: list[str] | None = None) -> TokenBatch:
        """One row a text, padded on pad_side, with the tokens that the model was trained to see around every text.

        An encoder-decoder's batch is its targets, one for each text, with the texts as its source; without targets the
        model writes them itself, greedily, or where it predicts nothing reads its texts again.
        Raises ValueError for targets that are not one a text, or not taken.
        """
        batch = self._tokens.texts.encode(texts, pad_side)
        writer = self._tokens.targets
        if writer is None:
            if targets is not None:
                raise ValueError(
                    say("{model} is not an encoder-decoder: it takes texts but no targets", model=self.name)
                )
            return batch
        if targets is None and not self.predicts:
            written = writer.encode(texts, pad_side)  # as a classifier made of an encoder-decoder does
        elif targets is None:
            written = writer.batch(self._write(batch), pad_side, tuple("" for _ in texts))
        else:
            check_targets(targets, texts)
            written = writer.encode(targets, pad_side)
        return replace(written, source=batch)

    def label(self, token: int) -> str:
        """What to show for an id."""
        return self._tokens.texts.label(token)

    @property
    def vocabulary(self) -> int:
        """How many ids its texts are made of, from 0 on."""
        return self._tokens.texts.vocabulary

    @torch.inference_mode()
    def run(self, batch: TokenBatch, spec: MaskSpec | None = None) -> Trace:
        """One forward pass under the masks of spec (the standard ones unless given).

        Raises NotSupported, with the model's name, should an attention of the network not have come through ours;
        ValueError for a spec of layers or heads that are not there, or of positions that the network does not take.
        """
        return self._run(batch, self.standard if spec is None else spec, None)

    @torch.inference_mode()
    def run_edited(self, batch: TokenBatch, spec: MaskSpec, edit: HeadEdit) -> Trace:
        """`run`, but for what edit makes of each attention's heads."""
        return self._run(batch, spec, edit)

    @torch.inference_mode()
    def residuals(self, batch: TokenBatch, spec: MaskSpec) -> Residuals:
        """The residual stream of a run under spec, of an encoder-decoder its decoder's.

        Raises NotSupported, with the model's name, where what follows the last layer is not found.
        """
        try:
            with self._residuals.reading() as read:
                trace = self.run(batch, spec)
            return residuals(read, trace.states)
        except NotSupported as error:
            raise NotSupported(f"{self.name}: {error}") from None

    @torch.inference_mode()
    def frozen(self, trace: Trace, row: int) -> FrozenNetwork:
        """One row of a run with its norms frozen; the row is run again, alone, and read.

        Raises NotSupported for all but a single stack whose layers add to one stream.
        """
        try:
            return self._frozen(trace, row)
        except NotSupported as error:
            why = str(error)
            raise NotSupported(why[0].upper() + why[1:]) from None

    def _frozen(self, trace: Trace, row: int) -> FrozenNetwork:
        stacks, sites = self._stacks, self._findings.sites
        if isinstance(stacks, TwoStacks):
            raise NotSupported(
                say("it is an encoder-decoder: there are two residual streams, and heads that read both")
            )
        places = [site.place for site in sites]
        numbers = layers.numbers(places)
        if numbers is None:
            raise NotSupported(say(NO_LIST))
        alone = trace.batch.rows([row])
        with self._residuals.reading() as read:
            again = self.run(alone, trace.spec)
        positions = positions_under(trace.spec, alone)[0].tolist()

        def bench(position: int) -> LayerProbe:
            token = int(alone.ids[0, position])
            return LayerProbe(
                stacks, self._residuals, token, positions[position], own_code=any(s.own_code for s in sites)
            )

        modules = tuple(site.module for site in sites if site.module is not None)
        sited = Sited(numbers, modules)
        ends = (residuals(read, again.states).final, self.readout)
        return FrozenNetwork(read, again, sited, bench, ends)

    @torch.inference_mode()
    def run_calls(
        self, batch: TokenBatch, spec: MaskSpec, ends: Sequence[int], masking: Masking = MaskContext.allowed
    ) -> Tensor:
        """The states [B,T,W] of a text read in several calls with transformers' own cache.

        Raises NotSupported for an encoder-decoder, and for a network that takes no cache.
        """
        stack = self._stacks
        if isinstance(stack, TwoStacks) or not stack.takes_cache:
            return super().run_calls(batch, spec, ends, masking)
        with self._explained(spec, batch):
            ids, keep = self._on_device(batch)
            states, past, positions = [], stack.cache(), positions_under(spec, batch).to(self._device)
            for start, end in pairwise([0, *ends]):
                run = Recording(
                    self._findings.sites, spec, {"self": keep[:, :end]}, standard=self.standard,
                    splits={"self": batch.columns(slice(end)).split}, masking=masking,
                )  # fmt: skip
                run.positions = positions[:, start:end]
                states.append(stack.states(run, ids[:, start:end], keep[:, :end], past))
            return torch.cat(states, dim=1)

    def _run(self, batch: TokenBatch, spec: MaskSpec, edit: HeadEdit | None) -> Trace:
        with self._explained(spec, batch):
            if isinstance(self._stacks, TwoStacks):
                return self._run_both(self._stacks, batch, spec, edit)
            return self._run_one(self._stacks, batch, spec, edit)

    @contextmanager
    def _explained(self, spec: MaskSpec, batch: TokenBatch) -> Iterator[None]:
        """Inside, a run under spec: whatever the network raises is a NotSupported with its name. Raises ValueError
        for a spec that the network does not take."""
        spec.check_scope(max(self.describe().layers.values()), max(heads for heads, _ in self._findings.heads))
        own = spec.positions == "counted" and batch.positions is None
        if not own and not self._stacks.takes_positions:
            raise ValueError(
                say(
                    "{model} computes its own positions: expected counted ones, got {positions}",
                    model=self.name, positions=spec.positions,
                )
            )  # fmt: skip
        try:
            yield
        except NotSupported as error:
            raise refusal(self.name, self.network.config.model_type, str(error)) from None
        except (ValueError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001 - what a stranger's network raises on some text, nobody can list
            why = say("it failed on this text ({error}: {why})", error=type(error).__name__, why=first_line(error))
            raise refusal(self.name, self.network.config.model_type, why) from None

    def describe(self) -> Description:
        """What was found when it was loaded, in the reader's language."""
        found, head = self._description(), self._head
        if head.adapted:
            merged = say("{architecture}, its adapter merged", architecture=found.architecture)
            found = replace(found, architecture=merged)
        return replace(found, precision=formats.said(head.stored))

    @once
    def _description(self) -> Description:
        """All of it that is the same in every language."""
        network, sites = self.network, self._findings.sites
        sizes = [one for site in sites for one in site.native.sizes]
        causal = ["causal"] if any(site.causal for site in sites) else []
        return Description(
            architecture=type(network).__name__,
            kind=self.kind,
            layers={part: sum(site.part == part for site in sites) for part in self.attentions},
            heads=self.num_heads,
            key_value_heads=len(set(self.key_value_heads)),
            heads_by_part={site.part: heads for site, heads in zip(sites, self._findings.heads, strict=True)},
            context=self._stacks.context(),
            masks=(*causal, "padding", *(name for name in NATIVE if name in dict(sizes))),
            sizes={name: (size, [one for one, _ in sizes].count(name)) for name, size in reversed(sizes)},
            layer_numbers=self._findings.layer_numbers,
            layer_kinds=self._findings.layer_kinds,
            parameters=sum(parameter.numel() for parameter in network.parameters()),
        )

    def _run_one(self, stack: OneStack, batch: TokenBatch, spec: MaskSpec, edit: HeadEdit | None) -> Trace:
        ids, keep = self._on_device(batch)
        splits = {"self": batch.split}
        sites = self._findings.sites
        run = Recording(sites, spec, {"self": keep}, standard=self.standard, splits=splits, edit=edit)
        if stack.takes_positions:
            run.positions = positions_under(spec, batch).to(self._device)
        states = stack.states(run, ids, keep)
        return Trace(batch, spec, run.layers()["self"], states, self.readout)

    def _run_both(self, stacks: TwoStacks, batch: TokenBatch, spec: MaskSpec, edit: HeadEdit | None) -> Trace:
        source = _source_of(self.name, batch)
        ids, keep = self._on_device(batch)
        source_ids, source_keep = self._on_device(source)
        keeps = {"encoder": source_keep, "decoder": keep, "cross": source_keep}
        splits = {"encoder": source.split, "decoder": batch.split}
        sites = self._findings.sites
        run = Recording(sites, spec, keeps, standard=self.standard, splits=splits, edit=edit)
        memory = stacks.memory(run, source_ids, source_keep)
        states = stacks.states(run, ids, keep, memory, source_keep)
        layers = run.layers()
        parts = {
            "encoder": Attention(layers["encoder"], source, source),
            "decoder": Attention(layers["decoder"], batch, batch),
            "cross": Attention(layers["cross"], batch, source),
        }
        return Trace(batch, spec, layers["decoder"], states, self.readout, "decoder", parts)

    @torch.inference_mode()
    def _write(self, source: TokenBatch) -> list[list[int]]:
        """A target for each text: the likeliest token after the other, without the closing one."""
        stacks, tokens = self._stacks, self._tokens
        assert isinstance(stacks, TwoStacks)
        assert tokens.targets is not None
        begin = tokens.targets.start
        ids, keep = self._on_device(source)
        keeps = {"encoder": keep, "cross": keep}
        in_encoder = tuple(site for site in self._findings.sites if site.part == "encoder")
        in_decoder = tuple(site for site in self._findings.sites if site.part != "encoder")
        memory = stacks.memory(Recording(in_encoder, self.standard, keeps), ids, keep)
        rows = torch.tensor([begin] * len(ids), device=self._device)
        ends = torch.tensor(sorted(tokens.ends), device=self._device)
        ended = torch.zeros(len(ids), dtype=torch.bool, device=self._device)
        for _ in range(min(MOST_WRITTEN, self.context - len(begin))):
            written = torch.ones_like(rows, dtype=torch.bool)
            run = Recording(in_decoder, self.standard, keeps | {"decoder": written})
            logits = stacks.logits(stacks.states(run, rows, written, memory, keep)[:, -1])
            logits[:, tokens.never_written] = float("-inf")
            token = logits.argmax(-1)
            rows = torch.cat([rows, token[:, None]], dim=-1)
            ended |= torch.isin(token, ends)
            if ended.all():
                break
        return [_until(row, len(begin), tokens.ends) for row in rows.tolist()]

    def readout(self, states: Tensor) -> Tensor:
        """Final states [.., W] -> logits [.., V]. Raises NotSupported for a model that has none."""
        if not self.predicts:
            raise NotSupported(
                say(
                    "{model} was saved without a language-model head: it has attention to show, but predicts no tokens",
                    model=self.name,
                )
            )
        return self._stacks.logits(states)

    def _on_device(self, batch: TokenBatch) -> tuple[Tensor, Tensor]:
        if batch.ids.shape[1] > self.context:
            count = batch.ids.shape[1]
            raise ValueError(
                say("expected at most {most} tokens (the context), got {count}", most=self.context, count=count)
            )
        return batch.ids.to(self._device), batch.keep.to(self._device)


def load(name: str, progress: hub.Progress | None = None, settings: Settings | None = None) -> HuggingFaceModel:
    """A model by its hub id, or from a folder.

    Raises NotAvailable when its files cannot be had; CheckpointError (a ValueError) when they cannot be used,
    NotSupported and folders.TooLarge being kinds of it.
    """
    settings = settings or Settings.from_environment()
    return from_folder(name, fetching.fetch(name, progress, settings), settings)


def from_folder(name: str, folder: Path, settings: Settings, report: Report = lambda _: None) -> HuggingFaceModel:
    """The model in a folder that `fetching.fetch` gave. report: told what is being done; what it raises stops it.

    Raises CheckpointError and its kinds.
    """
    config = checkpoint_files.check_folder(name, folder, settings, in_root=checkpoint_files.is_path(name))
    check_type(name, config)
    tokenizers = read_tokenizers(name, folder, config["model_type"])
    network, head = read_network(name, folder, report)
    return _examined(name, network, tokenizers, head, settings.tokens, report)


def from_network(network: Any, tokenizer: Any, name: str | None = None) -> HuggingFaceModel:
    """A model of transformers that is in memory already, with its tokenizer: transformers' own, or a tokenizers one.

    The network is left as it is, in its type and on its device: what is switched to our attention is a second one that
    shares its weights. Raises CheckpointError and its kinds, for what is neither.
    """
    if not isinstance(network, PreTrainedModel):
        kind = type(network).__name__
        raise CheckpointError(f"expected a model of transformers (a PreTrainedModel), got {kind}")  # not shown
    name = name or Path(network.name_or_path or type(network).__name__).name
    head = head_of(name, network)
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not isinstance(backend, Tokenizer):
        kind = type(tokenizer).__name__
        raise CheckpointError(f"expected a tokenizer of transformers or of tokenizers, got {kind}")  # not shown
    own = Tokenizer.from_str(backend.to_str())  # its settings are changed
    shared = copy.deepcopy(network, {id(weight): weight for weight in network.parameters()}).eval()
    shared.set_attn_implementation("eager")
    return _examined(name, shared, (own, own), head, Settings().tokens)


def _examined(
    name: str,
    network: PreTrainedModel,
    tokenizers: tuple[Tokenizer, Tokenizer],
    head: OutputHead,
    tokens: int,
    report: Report = lambda _: None,
) -> HuggingFaceModel:
    """The network as a model of ours, once it is shown that its attention comes through. Raises CheckpointError."""
    model_type = network.config.model_type
    try:
        check_vocabulary(name, network, tokenizers[0])
        stacks = stacks_of(network)
        findings = examine(stacks, report)
        return HuggingFaceModel(name, stacks, findings, tokenizers, head=head, tokens=tokens)
    except NotSupported as error:
        raise refusal(name, model_type, str(error)) from None
    except (CheckpointError, Stopped):
        raise
    except Exception as error:  # noqa: BLE001 - what an architecture unlike the others raises, nobody can list
        why = say("it cannot be run on its own ({error}: {why})", error=type(error).__name__, why=first_line(error))
        raise refusal(name, model_type, why) from None


def _source_of(name: str, batch: TokenBatch) -> TokenBatch:
    if batch.source is None:
        why = f"{name} is an encoder-decoder: expected a batch with a source, as its encode makes it"  # not shown
        raise ValueError(why)
    return batch.source


def _layers_of(findings: Findings, part: str) -> str | None:
    """Where in the stack the list of the layers is that this attention stands in; None where it is in no one list."""
    paths = {None if site.place is None else site.place.path for site in findings.sites if site.part == part}
    return paths.pop() if len(paths) == 1 else None


def _until(row: list[int], start: int, ends: frozenset[int]) -> list[int]:
    """A written row up to its closing token, which is left out; the start is not looked at."""
    stop = next((place for place, token in enumerate(row) if place >= start and token in ends), len(row))
    return row[:stop]
