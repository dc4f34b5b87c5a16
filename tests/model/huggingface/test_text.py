"""Tests of Hugging Face models on text: added tokens, given and generated targets, a story, and many threads."""

import dataclasses
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.decoders import Metaspace as MetaspaceDecoder
from tokenizers.models import Unigram
from tokenizers.pre_tokenizers import Metaspace
from transformers import BertTokenizer, Phi3Config

from model.huggingface import adapter
from model.huggingface.adapter import HuggingFaceModel
from model.masks import MaskSpec
from model.text import BatchTokenizer, added_around
from model.trace import Trace
from serving.settings import Settings
from tests.model.huggingface import families
from tests.tensors import largest_difference

TEXT = "the cat sat on a mat"
STORY = ", there was a little girl named Lily. She loved to play outside in the park."


def load(name: str, folder: Path) -> HuggingFaceModel:
    return adapter.load(str(families.save(name, folder / name)), settings=Settings())


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, HuggingFaceModel]:
    folder = tmp_path_factory.mktemp("models")
    return {name: load(name, folder) for name in ("gpt2", "llama", "mistral", "gemma2", "bert", *families.PAIRS)}


@pytest.fixture(scope="module")
def storyteller(data: Path) -> HuggingFaceModel:
    """Return a trained llama with 260,000 weights."""
    return adapter.load(str(data / "stories260K"), settings=Settings())


class TestWhatIsAdded:
    @pytest.mark.parametrize(
        ("name", "pieces"),
        [("gpt2", "the cat"), ("llama", "<s> the cat"), ("bert", "<s> the cat </s>"), ("t5", "the cat </s>")],
    )
    def test_what_is_put_around_a_text(self, models: dict[str, HuggingFaceModel], name: str, pieces: str) -> None:
        given = {"targets": ["it"]} if name in families.PAIRS else {}
        batch = models[name].encode(["the cat"], **given)
        shown = batch if batch.source is None else batch.source
        assert shown.pieces == (tuple(pieces.split()),)
        assert [models[name].label(token) for token in shown.ids[0].tolist()] == pieces.split()

    def test_typed_special_tokens_are_text(self, models: dict[str, HuggingFaceModel]) -> None:
        batch = models["llama"].encode(["<s> </s> <pad>"])
        assert batch.ids.tolist() == [[families.START, *[families.UNKNOWN] * 6]]  # each is split in two

    def test_typed_special_tokens_are_text_for_a_vocabulary_that_has_them_as_words(self) -> None:
        """T5's vocabulary has them; its pieces contain the space before them."""
        pieces = ["<pad>", "</s>", "<unk>", "▁", "<", "/", "s", ">", "a", "▁a"]
        tokenizer = Tokenizer(Unigram([(piece, -1.0) for piece in pieces], unk_id=2))
        tokenizer.pre_tokenizer = Metaspace()
        tokenizer.decoder = MetaspaceDecoder()
        tokenizer.add_special_tokens(["<pad>", "</s>", "<unk>"])
        assert 1 in tokenizer.encode("a</s>a").ids
        batch = BatchTokenizer(tokenizer, 20, pad=0, end=[1]).encode(["a</s>a"])
        assert "".join(batch.pieces[0]).replace("·", "") == "a</s>a</s>"
        assert batch.ids[0].tolist().count(1) == 1

    def test_a_text_that_is_cut_keeps_its_ends(self, models: dict[str, HuggingFaceModel]) -> None:
        batch = models["bert"].encode(["the " * 40 + "cat " * 40], "left")
        assert batch.ids.shape == (1, models["bert"].context) == (1, 47)
        assert (batch.pieces[0][0], batch.pieces[0][-1]) == ("<s>", "</s>")
        assert batch.pieces[0][1:-1] == ("the",) * 40 + ("cat",) * 5
        assert batch.cut[0].split() == ["cat"] * 35
        assert models["bert"].run(batch).num_layers == 3

    def test_a_tokenizer_with_nothing_but_its_vocabulary(self, tmp_path: Path) -> None:
        """Older repositories have no tokenizer.json."""
        folder = families.save("bert", tmp_path / "bert")
        for path in folder.glob("*token*"):
            path.unlink()
        entries = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *families.WORDS, "##s"]
        (folder / "vocab.txt").write_text("\n".join(entries) + "\n")
        batch = adapter.load(str(folder), settings=Settings()).encode(["The cats saw"])
        assert batch.pieces == (("[CLS]", "the", "cat", "##s", "saw", "[SEP]"),)
        assert batch.ids.tolist() == [BertTokenizer.from_pretrained(folder)("The cats saw")["input_ids"]]

    @pytest.mark.parametrize(
        ("template", "around"),
        [("$A", ([], [])), ("<s> $A", ([1], [])), ("$A </s>", ([], [2])), ("<s> <s> $A </s>", ([1, 1], [2]))],
    )
    def test_it_is_read_off_the_tokenizer_itself(self, template: str, around: tuple[list[int], list[int]]) -> None:
        tokenizer: Tokenizer = families.word_tokenizer(template)
        assert added_around(tokenizer) == around

    def test_more_tokens_than_the_context_are_refused_by_a_run(self, models: dict[str, HuggingFaceModel]) -> None:
        batch = models["gpt2"].encode(["the " * 47])
        longer = dataclasses.replace(batch, ids=batch.ids.repeat(1, 2), keep=batch.keep.repeat(1, 2))
        with pytest.raises(ValueError, match="expected at most 47 tokens, got 94"):
            models["gpt2"].run(longer)

    def test_positions_that_would_change_the_network_for_everybody_are_not_reached(self, tmp_path: Path) -> None:
        """For a long context, Phi-3 overwrites the network's rotary frequencies with others."""
        rope = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0] * 3, "long_factor": [4.0] * 3}
        config = Phi3Config(**families.GROUPED, original_max_position_embeddings=16, rope_parameters=rope)
        model = adapter.load(str(families.save("phi3", tmp_path, config)), settings=Settings())
        rotary = model._stacks.network.model.rotary_emb
        before = rotary.inv_freq.clone()
        batch = model.encode(["the cat " * 30])
        assert batch.ids.shape[1] == model.context == 16
        model.run(batch)
        assert torch.equal(rotary.inv_freq, before)


class TestTargets:
    @pytest.mark.parametrize("name", families.PAIRS)
    def test_a_given_target_begins_as_trained(self, models: dict[str, HuggingFaceModel], name: str) -> None:
        batch = models[name].encode(["the cat", TEXT], "left", targets=["a big red ball", "it"])
        begin = {"t5": "<pad>", "marian": "<pad>", "bart": "</s> <s>"}[name]
        assert " ".join(batch.pieces[0]) == f"{begin} a big red ball"
        assert " ".join(batch.pieces[1]) == f"<pad> <pad> <pad> {begin} it"
        assert batch.keep[1].tolist() == [False] * 3 + [True] * (len(begin.split()) + 1)
        assert batch.source.pad_side == "left"

    @pytest.mark.parametrize("name", families.PAIRS)
    @pytest.mark.parametrize("side", ["left", "right"])
    def test_a_target_is_written_greedily(self, models: dict[str, HuggingFaceModel], name: str, side: str) -> None:
        model = models[name]
        texts = [TEXT, "one big ball", "then it saw the red mat near a cat"]
        batch = model.encode(texts, side)
        assert batch.source is not None
        trace = model.run(batch)
        lengths = []
        for row in range(len(texts)):
            here = batch.real(row)
            ids = batch.ids[row, here]
            start = len(model.encode(["the"], targets=["it"]).pieces[0]) - 1
            logits = trace.logits[row, here].clone()
            logits[:, [token for token in (families.PAD, int(ids[0])) if token != families.END]] = float("-inf")
            best = logits.argmax(-1)
            assert best[start - 1 : -1].tolist() == ids[start:].tolist()
            written = len(ids) - start
            assert written == min(adapter.MAX_WRITTEN, model.context - start) or int(best[-1]) == families.END
            assert families.END not in ids[start:].tolist()
            assert batch.would_continue[row] == (int(best[-1]) != families.END)
            lengths.append(written)
        assert max(lengths) > 0

    def test_padding_is_never_written(self, tmp_path: Path) -> None:
        """Marian's networks predict padding everywhere, and their configuration forbids writing it."""
        model = load("marian", tmp_path)
        model._stacks.network.final_logits_bias[0, families.PAD] = 1000.0
        batch = model.encode([TEXT])
        assert int(model.run(batch).logits[0, 0].argmax()) == families.PAD
        assert batch.ids.shape[1] > 1

    @pytest.mark.parametrize("limit", [3, 4, 5])
    def test_a_target_goes_on_unless_its_end_comes_next(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
    ) -> None:
        model = load("marian", tmp_path)
        ids = model.encode([TEXT]).ids[0].tolist()[1:]
        model._tokens = dataclasses.replace(model._tokens, ends=frozenset([ids[4]]))
        length = ids.index(ids[4])
        monkeypatch.setattr(adapter, "MAX_WRITTEN", limit)
        batch = model.encode([TEXT])
        assert batch.ids.shape[1] - 1 == min(limit, length)
        assert batch.would_continue == (length > limit,)
        assert families.PAD not in batch.ids[0, 1:]

    def test_targets_that_do_not_fit(self, models: dict[str, HuggingFaceModel]) -> None:
        with pytest.raises(ValueError, match="expected one target for each text, got 1 for 2: write one for each"):
            models["t5"].encode(["the", "cat"], targets=["it"])
        with pytest.raises(ValueError, match="is not an encoder-decoder: it takes texts but no targets"):
            models["llama"].encode(["the"], targets=["it"])
        with pytest.raises(ValueError, match="expected a batch with a source"):
            models["t5"].run(models["llama"].encode(["the"]))


class TestStories:
    def test_it_goes_on_as_it_was_taught(self, storyteller: HuggingFaceModel) -> None:
        text = "Once upon a time"
        while len(text) < len("Once upon a time" + STORY):
            trace = storyteller.run(storyteller.encode([text]))
            text += storyteller.label(int(trace.next_token().argmax())).replace("·", " ")
        assert text == "Once upon a time" + STORY

    def test_four_key_value_heads_for_eight(self, storyteller: HuggingFaceModel) -> None:
        assert storyteller.key_value_heads == (0, 0, 1, 1, 2, 2, 3, 3)
        found = storyteller.describe()
        assert (found.heads, found.key_value_heads, found.context, found.parameters) == (8, 4, 512, 260_032)


@pytest.fixture
def often() -> Iterator[None]:
    """Make Python switch threads 50 times as often as by default, so that it does within each run."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(usual / 50)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize(("name", "runs"), [("mistral", 50), ("gemma2", 25), ("bart", 25)])
def test_threads_share_a_model_not_masks(models: dict[str, HuggingFaceModel], name: str, runs: int) -> None:
    """Each of eight threads has its own masks; every run must equal the same run made alone."""
    model = models[name]
    given = {"targets": ["a big red ball", "it saw"]} if name in families.PAIRS else {}
    batch = model.encode([TEXT, "it saw"], "left", **given)
    specs = [MaskSpec(causal, padding, window) for causal, padding, window in product((True, False), repeat=3)]

    def results(spec: MaskSpec) -> list[torch.Tensor]:
        trace: Trace = model.run(batch, spec)
        parts = [trace.select(part) for part in trace.attentions]
        weights = [part.weights(layer, 0, 1) for part in parts for layer in range(part.num_layers)]
        return [trace.logits, *weights]

    serial = {spec: results(spec) for spec in specs}
    assert all(
        largest_difference(serial[one][0], serial[other][0]) > 1e-3
        for one, other in product(specs, specs)
        if (one.causal, one.padding) != (other.causal, other.padding)
    )

    def differences(spec: MaskSpec) -> float:
        return max(
            largest_difference(found, expected)
            for _ in range(runs)
            for found, expected in zip(results(spec), serial[spec], strict=True)
        )

    with ThreadPoolExecutor(len(specs)) as pool:
        assert max(pool.map(differences, specs)) == 0
