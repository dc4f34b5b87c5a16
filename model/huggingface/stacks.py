"""A transformers network in two halves: the stacks with all the attention (ids to states), the head (states to logits).

Split, because a trace keeps states, [B,T,W], and makes logits, [B,T,V], only when somebody asks.
Sizes: B rows, T tokens (S of the source), W width, V vocabulary.
"""

import copy
import inspect
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPastAndCrossAttentions

from model.huggingface.attention_hook import Run, give_positions, going_on
from model.transformer import positions_of

USUAL_CONTEXT = 512  # for models with relative positions, which state no limit: what T5 was trained with


class _States(BaseModelOutputWithPastAndCrossAttentions):
    """A stack's output that has nothing but states; what else an architecture asks for (router logits …) is None."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


class _PassThrough(nn.Module):
    """Stands where a stack stood and hands through what it is given: calling the network then is calling its head."""

    def forward(self, *_: Any, inputs_embeds: Tensor, **__: Any) -> _States:
        return _States(last_hidden_state=inputs_embeds)


def _replaced(network: nn.Module, path: str, stand_in: nn.Module) -> nn.Module:
    """network with another module at path, sharing all else; network itself stays as it is."""
    name, _, rest = path.partition(".")
    shadow = copy.copy(network)
    shadow._modules = dict(network._modules)
    shadow._modules[name] = _replaced(network.get_submodule(name), rest, stand_in) if rest else stand_in
    return shadow


class OneStack:
    """A decoder or an encoder with its language-model head."""

    def __init__(self, network: PreTrainedModel) -> None:
        self.network = network
        self.stack = _only_stack(network)
        self._head = _replaced(network, _name_of(self.stack, network), _PassThrough())
        # RoBERTa's kind works positions out by itself, from which ids are padding
        by_ids = (module for module in self.stack.modules() if hasattr(module, "create_position_ids_from_input_ids"))
        self._counts_by_ids = next(by_ids, None)
        self.takes_positions = self._counts_by_ids is None and _takes(self.stack, "position_ids")

    def states(self, run: Run, ids: Tensor, keep: Tensor) -> Tensor:
        """ids and keep [B,T] -> states [B,T,W]. Positions are the run's, or else counted over real tokens."""
        positions = positions_of(keep) if run.positions is None else run.positions
        options: dict[str, Any] = {"position_ids": positions} if self.takes_positions else {}
        if _takes(self.stack, "use_cache"):
            options["use_cache"] = False
        with going_on(run):
            # with an attention mask, positions that start again are not taken for packed sequences
            return self.stack(input_ids=ids, attention_mask=keep.long(), **options)[0]

    def logits(self, states: Tensor) -> Tensor:
        """[.., W] -> [.., V]."""
        logits = self._head(inputs_embeds=states.reshape(1, -1, states.shape[-1])).logits
        return logits.reshape(*states.shape[:-1], -1)

    def reference(self, ids: Tensor, keep: Tensor) -> Tensor:
        """The logits [B,T,V] of the network as transformers runs it."""
        options = {"position_ids": positions_of(keep)} if self.takes_positions else {}
        return self.network(input_ids=ids, attention_mask=keep.long(), **options).logits

    def layer_counts(self) -> dict[str, int]:
        """How many attention layers the configuration promises, for each part."""
        return {"self": self.stack.config.num_hidden_layers}

    def context(self) -> int:
        """The most positions it was made for, and that it takes without changing itself."""
        config = self.stack.config
        limit = min([getattr(config, "max_position_embeddings", None) or USUAL_CONTEXT, *_before_it_changes(config)])
        return limit if self._counts_by_ids is None else limit - cast(int, self._counts_by_ids.padding_idx) - 1


class TwoStacks:
    """An encoder-decoder. Positions are always counted over real tokens."""

    takes_positions = False

    def __init__(self, network: PreTrainedModel) -> None:
        self.network = network
        self.encoder, self.decoder = network.get_encoder(), network.get_decoder()
        self._head = _replaced(network, _name_of(self.decoder, network), _PassThrough())
        for stack in (self.encoder, self.decoder):
            embedding = getattr(stack, "embed_positions", None)
            if embedding is not None and _takes(embedding, "position_ids"):
                give_positions(embedding)

    def memory(self, run: Run, ids: Tensor, keep: Tensor) -> Tensor:
        """The encoder's states: ids and keep [B,S] -> [B,S,W]."""
        run.positions = positions_of(keep)
        with going_on(run):
            return self.encoder(input_ids=ids, attention_mask=keep.long())[0]

    def states(self, run: Run, ids: Tensor, keep: Tensor, memory: Tensor, memory_keep: Tensor) -> Tensor:
        """The decoder's: ids and keep [B,T], memory [B,S,W], memory_keep [B,S] -> [B,T,W]."""
        run.positions = positions_of(keep)
        with going_on(run):
            return self.decoder(
                input_ids=ids,
                attention_mask=keep.long(),
                encoder_hidden_states=memory,
                encoder_attention_mask=memory_keep.long(),
                use_cache=False,
            )[0]

    def logits(self, states: Tensor) -> Tensor:
        """[.., W] -> [.., V]."""
        flat = states.reshape(1, -1, states.shape[-1])
        logits = self._head(decoder_inputs_embeds=flat, encoder_outputs=BaseModelOutput(flat), use_cache=False).logits
        return logits.reshape(*states.shape[:-1], -1)

    def reference(self, ids: Tensor, keep: Tensor, source: Tensor, source_keep: Tensor) -> Tensor:
        """The logits [B,T,V] of the network as transformers runs it."""
        return self.network(
            input_ids=source,
            attention_mask=source_keep.long(),
            decoder_input_ids=ids,
            decoder_attention_mask=keep.long(),
        ).logits

    def layer_counts(self) -> dict[str, int]:
        """How many attention layers the configuration promises, for each part."""
        config = self.network.config
        encoder = getattr(config, "encoder_layers", None) or config.num_layers
        decoder = getattr(config, "decoder_layers", None) or getattr(config, "num_decoder_layers", None) or encoder
        return {"encoder": encoder, "decoder": decoder, "cross": decoder}

    def context(self) -> int:
        """The most positions it was made for, of the source and of the target."""
        return getattr(self.network.config, "max_position_embeddings", None) or USUAL_CONTEXT


Stacks = OneStack | TwoStacks


def stack_names(network: PreTrainedModel) -> tuple[str, ...]:
    """How the names of the weights in the network's stacks begin."""
    two = network.config.is_encoder_decoder
    stacks = (network.get_encoder(), network.get_decoder()) if two else (_only_stack(network),)
    return tuple(f"{_name_of(stack, network)}." for stack in stacks)


def vocabulary_of(network: PreTrainedModel) -> int:
    embedding = network.get_input_embeddings()
    return int(embedding.num_embeddings)  # type: ignore[arg-type]


def device_of(network: PreTrainedModel) -> torch.device:
    return next(network.parameters()).device


def _only_stack(network: PreTrainedModel) -> PreTrainedModel:
    """What transformers calls the decoder, of an encoder too; but ModernBERT has a last layer of that name."""
    found = network.get_decoder()
    return found if isinstance(found, PreTrainedModel) else cast(PreTrainedModel, network.base_model)


def _before_it_changes(config: PreTrainedConfig) -> list[int]:
    """Rotary positions of the "longrope" kind get other frequencies, for every thread, once a row passes this limit."""
    given = getattr(config, "rope_parameters", None) or {}
    kinds = [
        rope for rope in (given, *given.values()) if isinstance(rope, dict)
    ]  # one for all layers, or by layer type
    return [rope["original_max_position_embeddings"] for rope in kinds if rope.get("rope_type") == "longrope"]


def _takes(module: nn.Module, name: str) -> bool:
    return name in inspect.signature(module.forward).parameters


def _name_of(module: nn.Module, network: nn.Module) -> str:
    return next(name for name, candidate in network.named_modules() if candidate is module)
