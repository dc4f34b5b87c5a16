"""A transformers network as two halves: the stacks with all attention (ids to states) and the head (states to logits).

A trace keeps states, [B,T,W], and computes logits, [B,T,V], only when they are needed. Sizes: B rows, T tokens (S of
the source), W width, V vocabulary.
"""

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor, nn
from transformers import PreTrainedModel, cache_utils
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

from i18n import msg
from model.blocks import numbers_positions_by_padding, positions_of
from model.errors import NotSupported
from model.huggingface.attention_hook import AttentionRun, OwnAttention, active_run, set_positions_from_run

USUAL_CONTEXT = 512  # for relative positions, without a stated limit: T5's training length
LIMITS = ("max_position_embeddings", "max_seq_len", "max_target_positions")  # the last two: MPT, Whisper's decoder

UNWINDOWED_CACHE_LAYERS: dict[
    type, Callable[[], Any]
] = {  # cache layers limited to a window -> layers that keep every position
    cache_utils.DynamicSlidingWindowLayer: cache_utils.DynamicLayer,
    cache_utils.LinearAttentionAndSlidingWindowAttentionLayer: cache_utils.LinearAttentionAndFullAttentionLayer,
}


@dataclass(frozen=True, eq=False)
class Inputs:
    """A batch on the network's device: ids and keep [B,T], keep True = a real token; source: an encoder's batch; image:
    the processor's output for an image, for the module that contains the stack and the towers."""

    ids: Tensor
    keep: Tensor
    source: "Inputs | None" = None
    image: Mapping[str, Any] | None = None

    def keeps(self) -> dict[str, Tensor]:
        """Return for each attention which of its keys are real: bool [B,K]."""
        if self.source is None:
            return {"self": self.keep}
        return {"encoder": self.source.keep, "decoder": self.keep, "cross": self.source.keep}


class _States(BaseModelOutputWithPastAndCrossAttentions):
    """A stack's output with states alone; whatever else an architecture reads from it (router logits …) is None."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


class Replacement(nn.Module):
    """A replacement for a module that keeps its attributes: a head may read the stack's embeddings or its config."""

    def __init__(self, replaced: nn.Module) -> None:
        super().__init__()
        self.__dict__["replaced"] = replaced  # bypasses torch's setter, so that it is not registered as a submodule

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["replaced"], name)


class _PassThrough(Replacement):
    """A replacement for a stack that returns its input, so that calling the network computes its head alone."""

    def forward(self, *_: Any, inputs_embeds: Tensor, **__: Any) -> _States:
        return _States(last_hidden_state=inputs_embeds)


@contextmanager
def intercepted(run: AttentionRun, module: nn.Module, rows: int) -> Iterator[None]:
    """Let `run` compute the attentions of a module on a batch of `rows` rows inside this context."""
    with active_run(run), run.watch(module), OwnAttention(rows) if run.custom_attention else nullcontext():
        yield


class Stacks(ABC):
    """A network's stacks and its head.

    stack: the one whose states the head takes; parts: all stacks, by the name of their attention. takes_positions:
    whether it takes position ids; first_position: the position id of a text's first token in that case.
    """

    takes_positions = False
    first_position = 0

    def __init__(self, network: PreTrainedModel, stack: PreTrainedModel, body: nn.Module) -> None:
        """body: everything below the head, that is, the stack or the module that contains it and the towers."""
        self.network, self.stack, self.body, self.parts = network, stack, body, {"self": stack}
        self._head = _replaced(network, _name_of(body, network), _PassThrough(body))

    @abstractmethod
    def states(self, run: AttentionRun, inputs: Inputs) -> Tensor:
        """Return the stack's states [B,T,W], with its attentions computed by run."""

    @abstractmethod
    def reference(self, inputs: Inputs) -> Tensor:
        """Return the logits [B,T,V] of the network as transformers runs it."""

    @abstractmethod
    def context(self) -> int:
        """Return the most positions that the network was made for."""

    def logits(self, states: Tensor) -> Tensor:
        """Return the logits of states: [.., W] -> [.., V]."""
        with active_run(AttentionRun()):
            logits = self._logits_of_row(states.reshape(1, -1, states.shape[-1]))
        return logits.reshape(*states.shape[:-1], logits.shape[-1])

    def _logits_of_row(self, states: Tensor) -> Tensor:
        return logits_of(self._head(inputs_embeds=states))


class OneStack(Stacks):
    """A decoder or an encoder with its language-model head."""

    def __init__(self, network: PreTrainedModel) -> None:
        stack, body = _only_stack(network), network.base_model
        inside = set(body.modules())
        others = inside - set(stack.modules()) - {module for module in inside if stack in set(module.modules())}
        towers = any(True for other in others for _ in other.parameters(recurse=False))  # encoders of images or sound
        super().__init__(network, stack, body if body is not network and towers else stack)
        self.takes_positions = _takes_positions(stack)
        if not self.takes_positions:
            _count_real_tokens(stack)
        self.takes_cache = _takes(stack, "past_key_values")

    def cache(self) -> cache_utils.Cache:
        """Return an empty cache that keeps every position: a layer's window mask hides those outside its window."""
        cache = cache_utils.DynamicCache(config=self.stack.config)
        cache.layers = [
            UNWINDOWED_CACHE_LAYERS[type(layer)]() if type(layer) in UNWINDOWED_CACHE_LAYERS else layer
            for layer in cache.layers
        ]
        return cache

    def states(self, run: AttentionRun, inputs: Inputs, past: cache_utils.Cache | None = None) -> Tensor:
        """See Stacks.states. Positions are the run's, else counted over real tokens; with an image, the network's.
        past: the cache of earlier calls, whose positions are in inputs.keep [B,K] alone; this call's keys and values
        are added."""
        module = self.stack if inputs.image is None else self.body
        run.positions = positions_of(inputs.keep) if run.positions is None else run.positions
        arguments = self.arguments(module, inputs, run.positions)
        if past is not None:
            arguments |= {"use_cache": True, "past_key_values": past}
        with intercepted(run, self.stack, len(inputs.ids)):
            return cast(Tensor, module(**arguments)[0])

    def reference(self, inputs: Inputs) -> Tensor:
        return logits_of(self.network(**self.arguments(self.network, inputs, None)))

    def arguments(self, module: nn.Module, inputs: Inputs, positions: Tensor | None) -> dict[str, Any]:
        # given an attention mask, transformers does not take restarting positions for packed sequences
        arguments: dict[str, Any] = {"input_ids": inputs.ids, "attention_mask": inputs.keep.long()}
        if inputs.image is not None:
            arguments |= inputs.image
        elif self.takes_positions:
            positions = positions_of(inputs.keep) if positions is None else positions
            arguments["position_ids"] = positions + self.first_position
        if _takes(module, "use_cache"):
            arguments["use_cache"] = False
        return arguments

    def context(self) -> int:
        return _most_positions(self.stack, self.first_position)


class TwoStacks(Stacks):
    """An encoder-decoder. Positions are always counted over real tokens."""

    def __init__(self, network: PreTrainedModel) -> None:
        self.encoder, decoder = network.get_encoder(), _without_head(network.get_decoder())
        reads = getattr(self.encoder, "main_input_name", "input_ids")
        if reads != "input_ids":
            raise NotSupported(msg("its encoder reads {what}, not text", what=reads.replace("_", " ")))
        super().__init__(network, decoder, decoder)
        self.parts = {"encoder": self.encoder, "decoder": decoder}
        for stack in self.parts.values():
            _count_real_tokens(stack)

    def states(self, run: AttentionRun, inputs: Inputs) -> Tensor:
        assert inputs.source is not None
        return self.decode(run, inputs, self.encode(run, inputs.source))

    def encode(self, run: AttentionRun, source: Inputs) -> Tensor:
        """Return the encoder's states [B,S,W]."""
        run.part, run.positions = "encoder", positions_of(source.keep)
        arguments = {"input_ids": source.ids, "attention_mask": source.keep.long()} | _positions(self.encoder, run)
        with intercepted(run, self.encoder, len(source.ids)):
            return cast(Tensor, self.encoder(**arguments)[0])

    def decode(self, run: AttentionRun, inputs: Inputs, encoded: Tensor) -> Tensor:
        """Return the decoder's states [B,T,W] for the encoder's [B,S,W]."""
        assert inputs.source is not None
        run.part, run.positions = "decoder", positions_of(inputs.keep)
        with intercepted(run, self.stack, len(inputs.ids)):
            states: Tensor = self.stack(
                input_ids=inputs.ids,
                attention_mask=inputs.keep.long(),
                encoder_hidden_states=encoded,
                encoder_attention_mask=inputs.source.keep.long(),
                use_cache=False,
                **_positions(self.stack, run),
            )[0]
        return states

    def _logits_of_row(self, states: Tensor) -> Tensor:
        encoded = _States(last_hidden_state=states)
        return logits_of(self._head(decoder_inputs_embeds=states, encoder_outputs=encoded, use_cache=False))

    def reference(self, inputs: Inputs) -> Tensor:
        assert inputs.source is not None
        output = self.network(
            input_ids=inputs.source.ids,
            attention_mask=inputs.source.keep.long(),
            decoder_input_ids=inputs.ids,
            decoder_attention_mask=inputs.keep.long(),
        )
        return logits_of(output)

    def context(self) -> int:
        return min(map(_most_positions, self.parts.values()))


def stacks_of(network: PreTrainedModel) -> Stacks:
    """Return the stacks of a network. Raises NotSupported if it does not read text."""
    return TwoStacks(network) if network.config.is_encoder_decoder else OneStack(network)


def stack_names(network: PreTrainedModel) -> tuple[str, ...]:
    """Return the prefixes of the weight names of a network's stacks."""
    two = network.config.is_encoder_decoder
    stacks = (network.get_encoder(), _without_head(network.get_decoder())) if two else (_only_stack(network),)
    return tuple(f"{_name_of(stack, network)}." for stack in stacks)


def vocabulary_of(network: PreTrainedModel) -> int:
    """Return the number of rows of the token embedding."""
    stack = network.get_encoder() if network.config.is_encoder_decoder else _only_stack(network)
    for holder in (stack, network):
        try:
            weight = holder.get_input_embeddings().weight
        except (AttributeError, NotImplementedError):
            continue
        if isinstance(weight, Tensor) and weight.ndim == 2:
            return len(weight)
    raise NotSupported(msg("it has no token embedding table in the expected place"))


def logits_of(output: Any) -> Tensor:
    """Return a network's logits, which networks trained with two heads name differently."""
    for name in ("logits", "prediction_logits"):
        found = getattr(output, name, None)
        if isinstance(found, Tensor):
            return found
    raise NotSupported(msg("it returns no logits"))


def _replaced(network: nn.Module, path: str, module: nn.Module) -> nn.Module:
    """Return a copy of network that shares everything but the module at path."""
    name, _, rest = path.partition(".")
    shadow = copy.copy(network)
    shadow._modules = dict(network._modules)
    shadow._modules[name] = _replaced(network.get_submodule(name), rest, module) if rest else module
    return shadow


def _only_stack(network: PreTrainedModel) -> PreTrainedModel:
    """Return what transformers calls the decoder, also of an encoder; ModernBERT's `decoder` is a linear layer."""
    found = network.get_decoder()
    return _without_head(found if isinstance(found, PreTrainedModel) else network.base_model)


def _without_head(stack: nn.Module) -> PreTrainedModel:
    """Return the stack inside a wrapper that contains a whole language model or names its base model differently."""
    inner = getattr(stack, "base_model", stack)
    if inner is stack and isinstance(stack, PreTrainedModel) and stack.get_output_embeddings() is not None:
        inner = next((child for child in stack.children() if isinstance(child, PreTrainedModel)), stack)
    return cast(PreTrainedModel, inner)


def _most_positions(stack: PreTrainedModel, first: int = 0) -> int:
    """Return the most positions that a stack was made for. first: the position of a text's first token."""
    config = stack.config.get_text_config()
    # beyond some lengths a network computes something else: rotary positions of type "longrope" change their
    # frequencies, for every thread; Doge drops tokens
    given = getattr(config, "rope_parameters", None) or {}
    kinds = [rope for rope in (given, *given.values()) if isinstance(rope, dict)]  # one set, or one per layer type
    longest = [rope["original_max_position_embeddings"] for rope in kinds if rope.get("rope_type") == "longrope"]
    limits = (getattr(config, name, None) for name in LIMITS)
    stated = next((one for one in limits if isinstance(one, int) and one > 0), USUAL_CONTEXT)  # XLNet has -1
    limit: int = min([stated, *longest, getattr(config, "keep_window_size", None) or stated])
    embeddings = (one for name, one in stack.named_modules() if name.endswith("position_embeddings"))
    tables = [getattr(one, "weight", None) for one in embeddings]  # I-BERT's are not nn.Embedding
    counting = (
        getattr(one, "position_embeddings", None) for one in stack.modules() if numbers_positions_by_padding(one)
    )
    first = next((one.padding_idx + 1 for one in counting if one is not None), first)
    return min([limit, *(len(one) - first for one in tables if isinstance(one, Tensor))])


def _count_real_tokens(stack: nn.Module) -> None:
    """Make the position embedding of a stack use the active run's positions, if it takes positions."""
    embedding = getattr(stack, "embed_positions", None)
    # Pegasus-X computes positions from its input embeddings
    if embedding is not None and _takes(embedding, "position_ids") and not _takes(embedding, "inputs_embeds"):
        set_positions_from_run(embedding)


def _takes_positions(stack: PreTrainedModel) -> bool:
    """Whether a stack takes position ids. RoBERTa counts by the ids and Falcon's ALiBi over the row regardless."""
    counts = any(map(numbers_positions_by_padding, stack.modules())) or getattr(stack.config, "alibi", False)
    return not counts and _takes(stack, "position_ids")


def _positions(stack: PreTrainedModel, run: AttentionRun) -> dict[str, Any]:
    return {"position_ids": run.positions} if _takes_positions(stack) else {}


def _takes(module: nn.Module, name: str) -> bool:
    return name in inspect.signature(module.forward).parameters


def _name_of(module: nn.Module, network: nn.Module) -> str:
    names: dict[nn.Module, str] = {candidate: name for name, candidate in network.named_modules()}
    return names[module]
