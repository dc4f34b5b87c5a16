"""What we use of transformers beside its documented interface is still there, and still does what we use it for."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import BPE, Unigram
from transformers import AttentionInterface, AttentionMaskInterface, AutoModelForCausalLM, PreTrainedModel
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING
from transformers.utils import logging

from model.huggingface import described, internals, verify
from tests.model.huggingface import families, image_families
from tests.tensors import assert_near, largest_difference

VERSION = transformers.__version__
SPY = "unmask_keywords"
PASSED_BY = {"gemma2": {"softcap", "sliding_window"}, "t5": {"position_bias"}, "gpt_oss": {"s_aux"}, "gpt2": set()}


def broken(part: str) -> str:
    return f"transformers {VERSION} has changed a part that model/huggingface/internals.py relies on: {part}"


def forward(name: str, network: PreTrainedModel) -> None:
    ids = torch.ones(1, 5, dtype=torch.long)
    given = {"decoder_input_ids": ids} if name in families.PAIRS else {}
    with torch.no_grad():
        network(input_ids=ids, **given)


@pytest.mark.parametrize("name", families.ALL)
def test_every_keyword_of_an_attention_is_known(name: str) -> None:
    seen: dict[str, Any] = {}
    eager = transformers.models.llama.modeling_llama.eager_attention_forward

    def attention(module: Any, query: Any, key: Any, value: Any, mask: Any, scaling: Any = None, dropout: Any = 0.0,
                  **extra: Any) -> Any:  # fmt: skip
        seen.update({keyword: given for keyword, given in extra.items() if given is not None})
        groups = query.shape[1] // key.shape[1]
        module.num_key_value_groups = groups
        return eager(module, query, key, value, mask, scaling=scaling or query.shape[-1] ** -0.5, dropout=0.0)

    AttentionInterface.register(SPY, attention)
    AttentionMaskInterface.register(SPY, transformers.masking_utils.eager_mask)
    network = families.random_network(name)
    network.set_attn_implementation(SPY)
    forward(name, network)
    assert seen or name in families.PAIRS or name in families.ENCODERS, broken(f"AttentionInterface ({name})")
    assert not set(seen) - internals.KNOWN_KEYWORDS, broken(f"the keyword arguments of attention functions ({name})")
    assert not PASSED_BY.get(name, set()) - set(seen), broken(f"the keyword arguments of attention functions ({name})")


def test_the_name_of_an_attention_is_read_and_written_in_every_configuration() -> None:
    network = families.random_network("llama")
    assert internals.attention_name(network.config) == "eager", broken("PreTrainedConfig._attn_implementation")
    internals.set_attention_name(network, SPY, [network])
    names = {internals.attention_name(part.config) for part in network.modules() if isinstance(part, PreTrainedModel)}
    assert names == {SPY}, broken("PreTrainedConfig._attn_implementation_internal")
    network.set_attn_implementation("sdpa")
    assert internals.attention_name(network.config) == "sdpa", broken("PreTrainedConfig._attn_implementation")


def test_the_classes_of_a_task_are_listed_by_name() -> None:
    for task in [*described.TASKS, *(task for task, _ in verify.UNSUPPORTED_TASKS)]:
        part = broken(f"modeling_auto.MODEL_FOR_{task}_MAPPING_NAMES")
        try:
            classes = internals.classes_of_task(task)
        except AttributeError:
            pytest.fail(part)
        assert classes, part
        assert all(described._names(names) <= set(transformers.__all__) for names in classes.values()), part
    assert internals.classes_of_task("CAUSAL_LM")["gpt2"] == "GPT2LMHeadModel"


def test_the_tensors_of_a_checkpoint_are_counted_by_one_progress_bar(tmp_path: Path) -> None:
    families.random_network("gpt2").save_pretrained(tmp_path)
    bars = []

    def hook(make: Any, arguments: Any, options: Any) -> Any:
        bars.append((options.get("desc"), len(list(arguments[0])) if arguments else 0))
        return make(*arguments, **options)

    before = logging.set_tqdm_hook(hook)
    try:
        AutoModelForCausalLM.from_pretrained(tmp_path)
    finally:
        logging.set_tqdm_hook(before)
    counted = [tensors for words, tensors in bars if words == internals.WEIGHTS_BAR]
    assert len(counted) == 1, broken(f"the progress bar {internals.WEIGHTS_BAR!r}")
    assert counted[0] > 10


def test_a_decoder_says_that_it_runs_with_a_static_cache() -> None:
    part = broken("PreTrainedModel._can_compile_fullgraph")
    assert internals.runs_with_static_cache(families.random_network("llama")), part
    assert not internals.runs_with_static_cache(torch.nn.Linear(1, 1)), part


@pytest.mark.parametrize("kind", [BPE, Unigram])
def test_a_tokenizer_can_be_told_to_remember_no_words(kind: type) -> None:
    assert hasattr(kind, "_resize_cache"), broken(f"tokenizers.models.{kind.__name__}._resize_cache")
    internals.disable_word_cache(Tokenizer(kind()))


@pytest.mark.parametrize(
    "config",
    [transformers.Mistral3Config, transformers.SmolVLMConfig, transformers.Qwen3VLConfig, transformers.LlavaConfig],
)
def test_a_processor_needs_no_torchvision(config: type) -> None:
    """Of those that torchvision or num2words would be needed for, and of one that needs none."""
    found = internals.processor_of(config())
    assert found.get_attributes() == ["image_processor", "tokenizer"]
    assert found.__name__ == PROCESSOR_MAPPING[config].__name__
    assert internals.processor_of(transformers.GPT2Config()) is None


def test_the_towers_beside_a_stack_keep_their_attention() -> None:
    network, _ = image_families.FAMILIES["llava"]()
    model = transformers.AutoModelForImageTextToText.from_config(network, attn_implementation="sdpa").model
    internals.set_attention_name(model, SPY, [model.language_model])
    assert internals.attention_name(model.language_model.layers[0].self_attn.config) == SPY
    assert internals.attention_name(model.config) == SPY
    assert internals.attention_name(model.vision_tower.config) == "eager"


def test_an_attention_that_is_chosen_only_when_loaded() -> None:
    falcon = transformers.FalconForCausalLM(families.REFUSED["falcon"])
    assert [internals.selectable_only_at_loading(falcon, name) for name in ("eager", "sdpa", "foo")] == [
        True,
        True,
        False,
    ]
    llama = transformers.LlamaForCausalLM(families.DECODERS["llama"])
    assert not internals.selectable_only_at_loading(llama, "eager"), broken("_can_set_attn_implementation")


@torch.inference_mode()
def test_the_eager_attention_of_falcon_adds_alibi_twice() -> None:
    torch.manual_seed(3)
    sizes = {"vocab_size": 31, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "alibi": True}
    eager, expected = (
        transformers.FalconForCausalLM._from_config(
            transformers.FalconConfig(**sizes, initializer_range=0.5), attn_implementation=name
        ).eval()
        for name in ("eager", "sdpa")
    )
    expected.load_state_dict(eager.state_dict())
    ids = torch.arange(2, 13)[None]
    twice = eager(ids).logits
    internals.add_alibi_once(eager)
    once = eager(ids).logits
    assert_near(once, expected(ids).logits, 1e-4, "logits")
    assert largest_difference(twice, once) > 1e-2, "internals.add_alibi_once is needed no more"
