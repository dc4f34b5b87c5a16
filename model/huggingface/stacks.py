"""A transformers network in two halves: the stacks with all the attention (ids to states), the head (states to logits).

Split, because a trace keeps states, [B,T,W], and makes logits, [B,T,V], only when somebody asks.
Sizes: B rows, T tokens (S of the source), W width, V vocabulary.
"""

import copy
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import (
    Cache,
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionAndFullAttentionLayer,
    LinearAttentionAndSlidingWindowAttentionLayer,
)
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

from i18n import say
from model.errors import NotSupported
from model.huggingface.attention_hook import NoAttention, PositionedRun, give_positions, going_on
from model.huggingface.own_attention import OwnAttention
from model.huggingface.probe import Probe
from model.huggingface.recording import Recording
from model.transformer import positions_of

USUAL = (0, 1, 2)  # the first token's number; 2 in the embeddings of RoBERTa's kind, where 1 is padding


def counts_by_ids(module: nn.Module) -> bool:
    """Whether a module, a part of a network's, numbers tokens by which ids are padding: RoBERTa's kind, M2M-100."""
    table = getattr(module, "position_embeddings", None)
    numbered_from_padding = isinstance(table, nn.Embedding) and table.padding_idx is not None
    return hasattr(module, "create_position_ids_from_input_ids") or numbered_from_padding


USUAL_CONTEXT = 512  # for models with relative positions, which state no limit: what T5 was trained with
LIMITS = ("max_position_embeddings", "max_seq_len", "max_target_positions")  # the last two: MPT's, Whisper's decoder's


Pass = Probe | Recording
WHOLE: dict[
    type, Callable[[], Any]
] = {  # layers of a cache that forget what is beyond a window, and those that keep it
    DynamicSlidingWindowLayer: DynamicLayer,
    LinearAttentionAndSlidingWindowAttentionLayer: LinearAttentionAndFullAttentionLayer,
}


class _States(BaseModelOutputWithPastAndCrossAttentions):
    """A stack's output that has nothing but states; what else an architecture asks for (router logits …) is None."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


class _PassThrough(nn.Module):
    """Stands where a stack stood and hands through what it is given: calling the network then is calling its head."""

    def __init__(self, stack: nn.Module) -> None:
        super().__init__()
        self.__dict__["stood_here"] = stack  # past torch's own setter: it is no part of this module

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["stood_here"], name)  # a head may ask for the stack's embeddings or its config

    def forward(self, *_: Any, inputs_embeds: Tensor, **__: Any) -> _States:
        return _States(last_hidden_state=inputs_embeds)


@contextmanager
def through(run: PositionedRun, stack: nn.Module, rows: int) -> Iterator[None]:
    """The attentions of a stack on a batch of so many rows go through the run; those of code of its own too, where the
    run asks for them."""
    watched = run.whereabouts.watch(stack) if isinstance(run, Probe) else nullcontext()
    with going_on(run), watched, OwnAttention(rows) if run.own_code else nullcontext():
        yield


def _replaced(network: nn.Module, path: str, stand_in: nn.Module) -> nn.Module:
    """network with another module at path, sharing all else; network itself stays as it is."""
    name, _, rest = path.partition(".")
    shadow = copy.copy(network)
    shadow._modules = dict(network._modules)
    shadow._modules[name] = _replaced(network.get_submodule(name), rest, stand_in) if rest else stand_in
    return shadow


class OneStack:
    """A decoder or an encoder with its language-model head.

    takes_positions: whether it is told where each token stands; first_position: the number of a text's first one then.
    """

    def __init__(self, network: PreTrainedModel) -> None:
        self.network = network
        self.stack = _only_stack(network)
        body = _body(network, self.stack)
        self._head = _replaced(network, _name_of(body, network), _PassThrough(body))
        # RoBERTa's kind works positions out by itself, from which ids are padding
        self._counts_by_ids = next(filter(counts_by_ids, self.stack.modules()), None)
        self.takes_positions = self._counts_by_ids is None and _takes(self.stack, "position_ids")
        self.takes_cache = _takes(self.stack, "past_key_values")
        self.first_position = 0

    def cache(self) -> Cache:
        """An empty one, which keeps every position: a window's layers are masked like the others."""
        cache = DynamicCache(config=self.stack.config)
        for place, layer in enumerate(cache.layers):
            if type(layer) in WHOLE:
                cache.layers[place] = WHOLE[type(layer)]()
        return cache

    def states(self, run: PositionedRun, ids: Tensor, keep: Tensor, past: Cache | None = None) -> Tensor:
        """ids [B,T] and keep [B,K] -> states [B,T,W]. Positions are the run's, or else counted over real tokens.

        past: what earlier calls left of the first K - T positions; these are added to it.
        """
        positions = positions_of(keep) if run.positions is None else run.positions
        options: dict[str, Any] = self._numbered(positions)
        if _takes(self.stack, "use_cache"):
            options["use_cache"] = past is not None
        if past is not None:
            options["past_key_values"] = past
        with through(run, self.stack, len(ids)):
            # with an attention mask, positions that start again are not taken for packed sequences
            states: Tensor = self.stack(input_ids=ids, attention_mask=keep.long(), **options)[0]
            return states

    def logits(self, states: Tensor) -> Tensor:
        """[.., W] -> [.., V]."""
        with going_on(NoAttention()):
            logits = logits_of(self._head(inputs_embeds=states.reshape(1, -1, states.shape[-1])))
        return logits.reshape(*states.shape[:-1], logits.shape[-1])

    def reference(self, ids: Tensor, keep: Tensor) -> Tensor:
        """The logits [B,T,V] of the network as transformers runs it."""
        options: dict[str, Any] = self._numbered(positions_of(keep))
        if _takes(self.network, "use_cache"):
            options["use_cache"] = False
        return logits_of(self.network(input_ids=ids, attention_mask=keep.long(), **options))

    def _numbered(self, positions: Tensor) -> dict[str, Tensor]:
        return {"position_ids": positions + self.first_position} if self.takes_positions else {}

    def context(self) -> int:
        """The most positions it was made for, and that it takes without changing itself."""
        config = self.stack.config.get_text_config()
        limit = min([_stated(config), *_before_it_changes(config)])
        if self._counts_by_ids is not None:
            return limit - cast(int, self._counts_by_ids.padding_idx) - 1
        return min([limit, *(len(table) - self.first_position for table in _position_tables(self.stack))])


def _position_tables(stack: nn.Module) -> list[Tensor]:
    """One row a position: I-BERT's are no nn.Embedding."""
    named = [module for name, module in stack.named_modules() if name.endswith("position_embeddings")]
    tables = [getattr(module, "weight", None) for module in named]
    return [table for table in tables if isinstance(table, Tensor)]


class TwoStacks:
    """An encoder-decoder. Positions are always counted over real tokens."""

    takes_positions = False

    def __init__(self, network: PreTrainedModel) -> None:
        self.network = network
        self.encoder, self.decoder = network.get_encoder(), _without_head(network.get_decoder())
        reads = getattr(self.encoder, "main_input_name", "input_ids")
        if reads != "input_ids":
            raise NotSupported(say("its encoder reads {what}, not text", what=reads.replace("_", " ")))
        self._head = _replaced(network, _name_of(self.decoder, network), _PassThrough(self.decoder))
        for stack in (self.encoder, self.decoder):
            embedding = getattr(stack, "embed_positions", None)
            # Pegasus-X works its positions out from what it embeds
            if embedding is not None and _takes(embedding, "position_ids") and not _takes(embedding, "inputs_embeds"):
                give_positions(embedding)

    def memory(self, run: Pass, ids: Tensor, keep: Tensor) -> Tensor:
        """The encoder's states: ids and keep [B,S] -> [B,S,W]."""
        run.positions = positions_of(keep)
        with through(run, self.encoder, len(ids)):
            memory: Tensor = self.encoder(input_ids=ids, attention_mask=keep.long())[0]
            return memory

    def states(self, run: Pass, ids: Tensor, keep: Tensor, memory: Tensor, memory_keep: Tensor) -> Tensor:
        """The decoder's: ids and keep [B,T], memory [B,S,W], memory_keep [B,S] -> [B,T,W]."""
        run.positions = positions_of(keep)
        with through(run, self.decoder, len(ids)):
            states: Tensor = self.decoder(
                input_ids=ids,
                attention_mask=keep.long(),
                encoder_hidden_states=memory,
                encoder_attention_mask=memory_keep.long(),
                use_cache=False,
            )[0]
            return states

    def logits(self, states: Tensor) -> Tensor:
        """[.., W] -> [.., V]."""
        flat = states.reshape(1, -1, states.shape[-1])
        encoded = _States(last_hidden_state=flat)
        with going_on(NoAttention()):
            head = self._head(decoder_inputs_embeds=flat, encoder_outputs=encoded, use_cache=False)
            logits = logits_of(head)
        return logits.reshape(*states.shape[:-1], logits.shape[-1])

    def reference(self, ids: Tensor, keep: Tensor, source: Tensor, source_keep: Tensor) -> Tensor:
        """The logits [B,T,V] of the network as transformers runs it."""
        logits: Tensor = self.network(
            input_ids=source,
            attention_mask=source_keep.long(),
            decoder_input_ids=ids,
            decoder_attention_mask=keep.long(),
        ).logits
        return logits

    def context(self) -> int:
        """The most positions it was made for, of the source and of the target."""
        config = self.network.config.get_text_config(decoder=True)
        return _stated(config)


Stacks = OneStack | TwoStacks


def stacks_of(network: PreTrainedModel) -> Stacks:
    """Raises NotSupported for a network that reads something else than text."""
    return TwoStacks(network) if network.config.is_encoder_decoder else OneStack(network)


def stack_names(network: PreTrainedModel) -> tuple[str, ...]:
    """How the names of the weights in the network's stacks begin."""
    two = network.config.is_encoder_decoder
    stacks = (network.get_encoder(), _without_head(network.get_decoder())) if two else (_only_stack(network),)
    return tuple(f"{_name_of(stack, network)}." for stack in stacks)


def vocabulary_of(network: PreTrainedModel) -> int:
    """How many ids its embedding of tokens knows."""
    stack = network.get_encoder() if network.config.is_encoder_decoder else _only_stack(network)
    for holder in (stack, network):
        try:
            weight = holder.get_input_embeddings().weight
        except (AttributeError, NotImplementedError):
            continue
        if isinstance(weight, Tensor) and weight.ndim == 2:
            return len(weight)
    raise NotSupported(say("it has no token embedding table in the expected place"))


def logits_of(output: Any) -> Tensor:
    """Those of a network's output. Some that were trained with two heads call them otherwise."""
    for name in ("logits", "prediction_logits"):
        found = getattr(output, name, None)
        if isinstance(found, Tensor):
            return found
    raise NotSupported(say("it returns no logits"))


def device_of(network: PreTrainedModel) -> torch.device:
    return next(network.parameters()).device


def _body(network: PreTrainedModel, stack: nn.Module) -> nn.Module:
    """All below the head: the stack, or what holds it beside towers for pictures and sounds."""
    body = network.base_model
    inside = set(body.modules())
    others = inside - set(stack.modules()) - {module for module in inside if stack in set(module.modules())}
    towers = any(True for other in others for _ in other.parameters(recurse=False))
    return body if body is not network and towers else stack


def _only_stack(network: PreTrainedModel) -> PreTrainedModel:
    """What transformers calls the decoder, of an encoder too; but ModernBERT has a last layer of that name."""
    found = network.get_decoder()
    return _without_head(found if isinstance(found, PreTrainedModel) else network.base_model)


def _without_head(stack: nn.Module) -> PreTrainedModel:
    """Some wrappers hold a whole language model, its head too; some call the stack otherwise than they say."""
    inner = getattr(stack, "base_model", stack)
    if inner is stack and isinstance(stack, PreTrainedModel) and stack.get_output_embeddings() is not None:
        inner = next((child for child in stack.children() if isinstance(child, PreTrainedModel)), stack)
    return cast(PreTrainedModel, inner)


def _stated(config: PreTrainedConfig) -> int:
    limits = (getattr(config, name, None) for name in LIMITS)
    return next((one for one in limits if isinstance(one, int) and one > 0), USUAL_CONTEXT)  # XLNet says -1


def _before_it_changes(config: PreTrainedConfig) -> list[int]:
    """Rotary positions of the "longrope" kind get other frequencies, for every thread, once a row passes this limit;
    Doge leaves tokens out once there are more than it keeps."""
    given = getattr(config, "rope_parameters", None) or {}
    kinds = [
        rope for rope in (given, *given.values()) if isinstance(rope, dict)
    ]  # one for all layers, or by layer type
    longest = [rope["original_max_position_embeddings"] for rope in kinds if rope.get("rope_type") == "longrope"]
    kept = getattr(config, "keep_window_size", None)
    return longest if kept is None else [*longest, kept]


def _takes(module: nn.Module, name: str) -> bool:
    return name in inspect.signature(module.forward).parameters


def _name_of(module: nn.Module, network: nn.Module) -> str:
    names: dict[nn.Module, str] = {candidate: name for name, candidate in network.named_modules()}
    return names[module]
