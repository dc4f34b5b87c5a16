"""Hugging Face models from a Hub id, a folder or memory, with every attention computed by Unmask's own core.

Import this module only when such a model is chosen: importing transformers takes seconds. Sizes: B rows, T tokens (S of
the source), V vocabulary.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from tokenizers import Tokenizer
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicLayer

from i18n import N_, Message, msg
from model.base import TRACE_BYTES, CachedCall, Description, HeadEdit, Model, Residuals, StreamEdit, check_finite
from model.blocks import KeysValues, positions_under
from model.errors import CheckpointError, NotSupported, Stopped, first_line
from model.hardware import describe_hardware
from model.huggingface import checkpoint_files, fetching, hub
from model.huggingface.image_prompts import CANNOT_PREPARE, ImageBatch, ImagePrompts, on_device
from model.huggingface.linearized_run import FrozenNetwork
from model.huggingface.loading import OutputHead, Report, head_of, read_network
from model.huggingface.recording import Recording, ResidualHooks, residuals
from model.huggingface.stacks import Inputs, OneStack, Stacks, TwoStacks, stacks_of
from model.huggingface.tokenizer_files import check_vocabulary, read_tokenizers, tokens_of
from model.huggingface.verify import ExaminedNetwork, check_known, check_type, examine, refusal
from model.masks import NATIVE, MaskContext, Masking, MaskSpec
from model.text import TokenBatch, check_targets
from model.trace import Attention, Trace
from serving.settings import Settings

MIN_CONTEXT = 512  # tokens always allowed, however much memory a run keeps
MAX_WRITTEN = 40  # most tokens of a target that the model generates
COUNTED_ONLY = N_("{model} computes its own positions: leave them counted, or choose a model that takes others")
NO_EVICTION = N_(
    "{model} keeps more state than keys and values, and no token can be dropped from that. Choose a model with "
    "attention layers only"
)
NO_HEAD = N_(
    "{model} was saved without a language-model head: it has attention to show, but predicts no tokens. Choose a "
    "checkpoint saved with its head"
)


class HuggingFaceModel(Model):
    """A transformers network with its tokenizers. Without a language-model head it predicts nothing."""

    network: PreTrainedModel

    def __init__(
        self,
        name: str,
        stacks: Stacks,
        findings: ExaminedNetwork,
        tokenizers: tuple[Tokenizer, Tokenizer],
        *,
        head: OutputHead,
        tokens: int,
        processor: Any = None,
    ) -> None:
        """tokenizers: those of the texts and of an encoder-decoder's targets. tokens: the most tokens in a row.
        processor: the processor of texts with an image, or the folder to read it from when it is first needed."""
        sites = findings.sites
        self.attentions = tuple(dict.fromkeys(site.part for site in sites))
        if isinstance(stacks, TwoStacks):
            self.kind = "encoder-decoder"
        else:
            self.kind = "decoder" if all(site.native.causal for site in sites) else "encoder"
        self.standard = MaskSpec(causal=self.kind != "encoder")
        self._shown = list(stacks.parts)[-1]
        shown = [site for site in sites if site.part == self._shown]
        heads, shared = findings.heads[self._shown]
        max_tokens = min(max(MIN_CONTEXT, TRACE_BYTES // findings.bytes_per_token), tokens)
        super().__init__(
            name,
            num_layers=len(shown),
            num_heads=heads,
            context=min(stacks.context(), max_tokens),
            bytes_per_token=findings.bytes_per_token,
            key_value_heads=tuple(head * shared // heads for head in range(heads)),
        )
        self.predicts, self._head, self.hardware = head.predicts, head, head.hardware
        self.network, self._stacks, self._findings = stacks.network, stacks, findings
        self.takes_positions = stacks.takes_positions
        locations = {site.location for site in shown}
        paths = {None if location is None else location.path for location in locations}
        several = len(locations) < len(shown) and None not in locations
        self._residuals = ResidualHooks(stacks.stack, paths.pop() if len(paths) == 1 else None, several=several)
        self._tokens = tokens_of(stacks.network, tokenizers, self.context)
        self.added_after = len((self._tokens.targets or self._tokens.texts).end)
        if self._tokens.targets is not None:
            self.given = len(self._tokens.targets.start)
        self._processor = processor

    def encode(self, texts: list[str], pad_side: str = "right", targets: list[str] | None = None) -> TokenBatch:
        """See Model.encode. Without targets, an encoder-decoder that predicts nothing takes the texts as targets."""
        batch = self._tokens.texts.encode(texts, pad_side)
        writer = self._tokens.targets
        if writer is None:
            if targets is not None:
                template = N_("{model} is not an encoder-decoder: it takes texts but no targets. Leave the targets out")
                raise ValueError(msg(template, model=self.name))
            return batch
        if targets is None and not self.predicts:
            written = writer.encode(texts, pad_side)  # as sequence classifiers built on encoder-decoders do
        elif targets is None:
            written = self._write(batch, pad_side)
        else:
            check_targets(targets, texts)
            written = writer.encode(targets, pad_side)
        return replace(written, source=batch)

    def encode_rendered(self, text: str) -> tuple[TokenBatch, frozenset[int]]:
        return self._tokens.texts.encode_rendered(text) if self.chats else super().encode_rendered(text)

    def encode_image(self, text: str, picture: Image.Image) -> ImageBatch:
        """Prepare a text with an image in it as one row, by the network's processor. The image comes first unless the
        text contains the processor's image token.

        Raises NotSupported for a network that reads no images, ValueError for what its processor refuses.
        """
        return self._prompts.encode(text, picture, self.label)

    @cached_property
    def _prompts(self) -> ImagePrompts:
        return ImagePrompts(self.name, self._stacks, self._processor)

    def label(self, token: int) -> str:
        return self._tokens.texts.label(token)

    @property
    def vocabulary(self) -> int:
        return self._tokens.texts.vocabulary

    @property
    def num_ids(self) -> int:
        embedding: Any = self.network.get_input_embeddings()
        return max(self.vocabulary, len(embedding.weight))

    @torch.inference_mode()
    def run(self, batch: TokenBatch, spec: MaskSpec | None = None, edit: HeadEdit | None = None) -> Trace:
        """See Model.run. Raises NotSupported if an attention of the network was not computed by Unmask's core,
        ValueError for positions that the network does not take."""
        spec = spec or self.standard
        with self._errors_as_not_supported(spec, batch):
            source = batch.source
            if source is None and self.kind == "encoder-decoder":
                why = "is an encoder-decoder: expected a batch with a source, as its encode makes it"  # not shown
                raise ValueError(f"{self.name} {why}")
            inputs, sites = self._inputs(batch), self._findings.sites
            splits = {"self": batch.split, "decoder": batch.split, "encoder": source.split if source else None}
            groups = batch.groups if isinstance(batch, ImageBatch) else ()
            run = Recording(
                sites, spec, inputs.keeps(), standard=self.standard, splits=splits, edit=edit, groups=groups
            )
            run.positions = positions_under(spec, batch).to(self.network.device)
            states = self._stacks.states(run, inputs)
            layers, parts = run.layers(), {}
            if source is not None:
                sides = {"encoder": (source, source), "decoder": (batch, batch), "cross": (batch, source)}
                parts = {name: Attention(layers[name], *side) for name, side in sides.items()}
            return Trace(batch, spec, layers[self._shown], states, self.readout, self._shown, parts)

    @torch.inference_mode()
    def residuals(
        self, batch: TokenBatch, spec: MaskSpec, edit: HeadEdit | None = None, entering: StreamEdit | None = None
    ) -> Residuals:
        with self._residuals.reading(entering) as read:
            trace = self.run(batch, spec, edit)
        return residuals(read, trace.states)

    @torch.inference_mode()
    def frozen(self, trace: Trace, row: int) -> FrozenNetwork:
        """Return one row of a run with its norms frozen; the row is run again, alone.

        Raises NotSupported for all networks but a single stack whose layers add to one residual stream.
        """
        if isinstance(self._stacks, TwoStacks):
            template = N_("It is an encoder-decoder: there are two residual streams, and heads that read both")
            raise NotSupported(msg(template))
        with self._residuals.reading() as read:
            alone = self.run(trace.batch.rows([row]), trace.spec)
        return FrozenNetwork(self._stacks, self._residuals, self._findings.sites, read, alone)

    @torch.inference_mode()
    def call(
        self,
        batch: TokenBatch,
        positions: Tensor,
        spec: MaskSpec,
        cache: Any = None,
        masking: Masking = MaskContext.allowed,
    ) -> CachedCall:
        """See Model.call; the cache is transformers' own. Raises NotSupported for a network that takes no cache."""
        stack = self._stacks
        if not isinstance(stack, OneStack) or not stack.takes_cache or isinstance(batch, ImageBatch):
            return super().call(batch, positions, spec, cache, masking)
        with self._errors_as_not_supported(spec, batch):
            inputs, splits = self._inputs(batch), {"self": batch.split}
            here = Inputs(inputs.ids[:, -positions.shape[1] :], inputs.keep)
            run = Recording(
                self._findings.sites, spec, here.keeps(), standard=self.standard, splits=splits, masking=masking
            )
            run.positions = positions.to(self.network.device)
            cache = stack.cache() if cache is None else copy.deepcopy(cache)
            return CachedCall(stack.states(run, here, cache), run.layers()[self._shown], cache)

    def keys_values(self, cache: Any) -> list[KeysValues]:
        if any(type(layer) is not DynamicLayer for layer in cache.layers):
            raise NotSupported(msg(NO_EVICTION, model=self.name))
        return [(layer.keys, layer.values) for layer in cache.layers]

    def cache_of(self, pairs: list[KeysValues]) -> Any:
        assert isinstance(self._stacks, OneStack)  # the only stacks whose cache has such pairs
        cache = self._stacks.cache()
        for layer, pair in zip(cache.layers, pairs, strict=True):
            layer.update(*pair)  # type: ignore[union-attr]  # see keys_values
        return cache

    @contextmanager
    def _errors_as_not_supported(self, spec: MaskSpec, batch: TokenBatch) -> Iterator[None]:
        """Turn any exception of the network inside this context into a NotSupported that names the model. Raises
        ValueError for a spec or positions that the network does not take."""
        layers, heads = max(self.describe().layers.values()), max(site.heads[0] for site in self._findings.sites)
        spec.check_scope(layers, heads, self._findings.layer_numbers.get("self", ()))
        counted = spec.positions == "counted" and batch.positions is None
        if not counted and (isinstance(batch, ImageBatch) or not self.takes_positions):
            raise ValueError(msg(COUNTED_ONLY, model=self.name))
        try:
            yield
        except NotSupported as error:
            raise refusal(self.name, self.network.config.model_type, str(error)) from None
        except (ValueError, MemoryError) as error:
            if isinstance(batch, ImageBatch) and not isinstance(str(error), Message):  # from transformers
                raise ValueError(msg(CANNOT_PREPARE, model=self.name, why=first_line(error))) from None
            raise
        except Exception as error:  # noqa: BLE001 - a third-party network may raise anything on some text
            why = msg("it failed on this text ({error}: {why})", error=type(error).__name__, why=first_line(error))
            raise refusal(self.name, self.network.config.model_type, why) from None

    def _inputs(self, batch: TokenBatch) -> Inputs:
        count = batch.ids.shape[1]
        if count > self.context:
            template = N_("expected at most {most} tokens, got {count}")
            raise ValueError(msg(template, most=self.context, count=count))
        source = None if batch.source is None else self._inputs(batch.source)
        image = on_device(batch.inputs, self.network) if isinstance(batch, ImageBatch) else None
        return Inputs(batch.ids.to(self.network.device), batch.keep.to(self.network.device), source, image)

    def describe(self) -> Description:
        return self._description

    @cached_property
    def _description(self) -> Description:
        """The model's description, built once."""
        network, sites = self.network, self._findings.sites
        architecture = type(network).__name__
        if not self.predicts:  # name the class that was saved: the head in memory is not in the files
            architecture = next(iter(network.config.architectures or ()), architecture)
        if self._head.adapted:
            architecture = msg("{architecture}, its adapter merged", architecture=architecture)
        sizes = [one for site in sites for one in site.native.sizes]
        causal = ["causal"] if any(site.native.causal for site in sites) else []
        return Description(
            architecture=architecture,
            kind=self.kind,
            layers={part: sum(site.part == part for site in sites) for part in self.attentions},
            heads=self.num_heads,
            key_value_heads=len(set(self.key_value_heads)),
            heads_by_part=self._findings.heads,
            context=self._stacks.context(),
            masks=(*causal, "padding", *(name for name in NATIVE if name in dict(sizes))),
            sizes={name: (size, [one for one, _ in sizes].count(name)) for name, size in reversed(sizes)},
            layer_numbers=self._findings.layer_numbers,
            layer_kinds=self._findings.layer_kinds,
            parameters=self.parameters,
            precision=describe_hardware(self.hardware, self._head.stored),
        )

    @torch.inference_mode()
    def _write(self, texts: TokenBatch, pad_side: str) -> TokenBatch:
        """Generate a target for each text, greedily and without its end token."""
        stacks, tokens, source = self._stacks, self._tokens, self._inputs(texts)
        assert isinstance(stacks, TwoStacks)
        assert tokens.targets is not None
        sites = self._findings.sites
        in_encoder = tuple(site for site in sites if site.part == "encoder")
        in_decoder = tuple(site for site in sites if site.part != "encoder")
        encoded = stacks.encode(Recording(in_encoder, self.standard, {"encoder": source.keep}), source)
        begin = tokens.targets.start
        rows = torch.tensor([begin] * len(source.ids), device=self.network.device)
        ends = torch.tensor(sorted(tokens.ends), device=self.network.device)
        ended = torch.zeros(len(rows), dtype=torch.bool, device=self.network.device)
        max_new_tokens = min(MAX_WRITTEN, self.context - len(begin))
        for _ in range(max_new_tokens + 1):  # one more token than is kept, since it may be an end token
            inputs = Inputs(rows, torch.ones_like(rows, dtype=torch.bool), source)
            run = Recording(in_decoder, self.standard, inputs.keeps())
            logits = stacks.logits(stacks.decode(run, inputs, encoded)[:, -1])
            logits[:, tokens.never_generated] = float("-inf")
            token = logits.argmax(-1)
            rows = torch.cat([rows, token[:, None]], dim=-1)
            ended |= torch.isin(token, ends)
            if ended.all():
                break
        written = [[*takewhile(lambda token: token not in tokens.ends, row)] for row in rows[:, len(begin) :].tolist()]
        batch = tokens.targets.written([row[:max_new_tokens] for row in written], pad_side)
        return replace(batch, would_continue=tuple(len(row) > max_new_tokens for row in written))

    def readout(self, states: Tensor) -> Tensor:
        """Return the logits of final states. Raises NotSupported for a model without a language-model head."""
        if not self.predicts:
            raise NotSupported(msg(NO_HEAD, model=self.name))
        return self._stacks.logits(states)


def load(name: str, progress: hub.Progress | None = None, settings: Settings | None = None) -> HuggingFaceModel:
    """Load a model by its Hub id or from a folder. Raises NotAvailable, CheckpointError and its subclasses."""
    settings = settings or Settings.from_environment()
    return from_folder(name, fetching.fetch(name, progress, settings), settings)


def from_folder(name: str, folder: Path, settings: Settings, report: Report = lambda _: None) -> HuggingFaceModel:
    """Load the model in a folder from `fetching.fetch`. report: called at each step; an exception it raises stops
    loading.

    Raises CheckpointError and its subclasses.
    """
    config = checkpoint_files.check_folder(name, folder, settings, check_type)
    tokenizers = read_tokenizers(name, folder, config["model_type"])
    network, head = read_network(name, folder, settings, report)
    model = _model_if_supported(name, network, tokenizers, head, settings.tokens, report, folder)
    model.chats = model.kind == "decoder" and checkpoint_files.has_chat_template(name, folder)
    return model


def from_network(
    network: Any, tokenizer: Any, name: str | None = None, settings: Settings | None = None
) -> HuggingFaceModel:
    """Wrap a transformers model in memory, with its tokenizer (of transformers or tokenizers) or its processor.

    The network is not changed: Unmask's attention runs in a copy that shares its weights. Raises CheckpointError.
    """
    if not isinstance(network, PreTrainedModel):
        kind = type(network).__name__
        why = f"expected a model of transformers (a PreTrainedModel), got {kind}"  # not shown
        within = "pass the one that torch.compile (its ._orig_mod) or DataParallel (its .module) wraps"  # not shown
        raise CheckpointError(f"{why}: {within}; unmask.capture shows the attention of any module")  # not shown
    name = name or Path(network.name_or_path or type(network).__name__).name
    head = head_of(name, network)
    check_known(name, network.config.to_dict())
    processor, tokenizer = tokenizer, getattr(tokenizer, "tokenizer", tokenizer)
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not isinstance(backend, Tokenizer):
        kind = type(tokenizer).__name__
        raise CheckpointError(f"expected a tokenizer of transformers or of tokenizers, got {kind}")  # not shown
    own = Tokenizer.from_str(backend.to_str())  # a copy, because its settings are changed
    memo = {id(one): one for one in (*network.parameters(), *network.buffers())}
    made = (one for part in network.modules() for one in vars(part).values() if isinstance(one, Tensor))
    memo |= {id(one): one.detach() for one in made if not one.is_leaf}  # non-leaf: pruning recomputes them
    shared = copy.deepcopy(network, memo).eval()
    shared.set_attn_implementation("eager")
    tokens = (settings or Settings.from_environment()).tokens
    model = _model_if_supported(name, shared, (own, own), head, tokens, processor=processor)
    model.chats = model.kind == "decoder" and bool(getattr(tokenizer, "chat_template", None))
    return model


def _model_if_supported(
    name: str,
    network: PreTrainedModel,
    tokenizers: tuple[Tokenizer, Tokenizer],
    head: OutputHead,
    tokens: int,
    report: Report = lambda _: None,
    processor: Any = None,
) -> HuggingFaceModel:
    """Return the model if `examine` accepts its network. Raises CheckpointError."""
    model_type = network.config.model_type
    try:
        check_vocabulary(name, network, tokenizers[0])
        stacks = stacks_of(network)
        findings = examine(stacks, report)
        return HuggingFaceModel(name, stacks, findings, tokenizers, head=head, tokens=tokens, processor=processor)
    except NotSupported as error:
        check_finite(name, network)  # NaN weights would make any logits differ
        raise refusal(name, model_type, error) from None
    except (CheckpointError, Stopped):
        raise
    except Exception as error:  # noqa: BLE001 - an unusual architecture may raise anything
        why = msg("it cannot be run on its own ({error}: {why})", error=type(error).__name__, why=first_line(error))
        raise refusal(name, model_type, why) from None
