"""Tests of the model catalog: loading from a folder, the cache or the Hub, its errors, and how much text is read."""

import shutil
from itertools import product
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import BPE, WordLevel
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerFast

from model import catalog
from model.base import MAX_ROWS, TRACE_BYTES, Model, tokenize
from model.catalog import ENTRIES, FILES
from model.errors import CheckpointError, TooLarge
from model.training.story import train_tokenizer
from serving.settings import Settings
from tests.model.huggingface.fake_hub import cache, no_network
from tests.tensors import assert_near
from tests.tiny import TINY, put_marks_around_texts

TEXT = "the cat sat on the mat"


@pytest.fixture
def files(tiny_folder: Path) -> dict[str, bytes]:
    return {name: (tiny_folder / name).read_bytes() for name in FILES}


class TestLoading:
    def test_a_setting_limits_what_is_read_and_not_what_it_was_made_for(self, tiny_folder: Path) -> None:
        model = catalog.load(str(tiny_folder), settings=Settings(tokens=16))
        assert (model.context, model.describe().context) == (16, 151)

    def test_what_a_page_says_of_it(self, tiny: Model) -> None:
        described = tiny.describe()
        assert (described.kind, described.layers, described.heads, described.context) == (
            "decoder",
            {"self": 2},
            3,
            151,
        )
        block = 2 * 2 * 21 + 4 * (21 * 21 + 21) + (21 * 37 + 37) + (37 * 21 + 21)  # norms, attention, mlp in and out
        assert described.parameters == 283 * 21 + 151 * 21 + 2 * block + 2 * 21

    @pytest.mark.parametrize("name", ["gpt2", "openai-community/gpt2"])
    @pytest.mark.parametrize("repo", ["gpt2", "openai-community/gpt2"])
    def test_a_model_in_the_cache_under_either_of_its_names_needs_no_network(
        self,
        tiny: Model,
        files: dict[str, bytes],
        hub_cache: Path,
        monkeypatch: pytest.MonkeyPatch,
        repo: str,
        name: str,
    ) -> None:
        no_network(monkeypatch)
        assert not catalog.is_on_disk(name)
        cache(hub_cache, repo, files)
        assert catalog.is_on_disk(name)
        found = catalog.load(name)
        assert isinstance(found, Model)
        assert found.name == name
        assert_near(found.run(found.encode([TEXT])).logits, tiny.run(tiny.encode([TEXT])).logits, 0, "logits")

    def test_a_name_that_means_nothing(self) -> None:
        with pytest.raises(ValueError, match="no such model anywhere"):
            catalog.load("no such model anywhere")
        here = (
            "story",
            "induction-300",
            "no such model anywhere",
            "dattes",
            "someone/model",
            "a/b:file.gguf",
        )
        assert [name for name in here if catalog.is_on_disk(name)] == ["story", "induction-300"]
        with pytest.raises(CheckpointError, match=r"b:file\.gguf"):
            catalog.load("a/b:file.gguf")

    def test_a_path_is_here_if_it_holds_a_model(self, tiny_folder: Path, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").touch()
        nothing = (
            str(tmp_path),
            str(tmp_path / "notes.txt"),
            "/etc/passwd",
            "/no/such/folder",
            "~nobody-of-this-name/x",
        )
        assert [name for name in nothing if catalog.is_on_disk(name)] == []
        (tmp_path / "some.gguf").touch()
        for path in (tiny_folder, tmp_path, tmp_path / "some.gguf"):
            assert catalog.is_on_disk(str(path))
        assert not catalog.is_on_disk(str(tmp_path / "other.gguf"))

    @pytest.mark.parametrize(
        ("name", "page"),
        [
            ("digits", "Pixels"),
            ("captioner", "Images"),
            ("captioner-prefix", "Images"),
            ("twins", "Why causal"),
        ],
    )
    def test_a_model_of_a_page_is_no_repository(self, name: str, page: str) -> None:
        assert (catalog.CHECKPOINTS / name.split("-")[0]).is_dir()
        for ask in (catalog.load, catalog.download_size):
            text = f"^{name} has a page of its own, {page}. Choose another model, such as story.$"
            with pytest.raises(CheckpointError, match=text):
                ask(name)
        with pytest.raises(CheckpointError, match=r"such as gpt2\.$"):
            catalog.load(name, settings=Settings(models=("gpt2",)))

    def test_entries_are_found_under_their_own_names(self) -> None:
        assert [entry.name for entry in ENTRIES.values()] == list(ENTRIES)
        assert [name for name, entry in ENTRIES.items() if entry.repo is None] == ["story", "dates", "induction"]


class TestTokenizers:
    @pytest.fixture
    def folder(self, tiny_folder: Path, tmp_path: Path) -> Path:
        return shutil.copytree(tiny_folder, tmp_path / "model")

    @pytest.mark.parametrize("names", [("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe")])
    def test_gpt2s_two_files_do_as_well(self, tiny: Model, folder: Path, names: tuple[str, str]) -> None:
        whole = Tokenizer.from_file(str(folder / "tokenizer.json"))
        (folder / "tokenizer.json").unlink()
        whole.model.save(str(folder))
        (folder / "vocab.json").rename(folder / names[0])
        (folder / "merges.txt").rename(folder / names[1])
        found = catalog.load(str(folder)).encode([TEXT, "é😀"])
        expected = tiny.encode([TEXT, "é😀"])
        assert torch.equal(found.ids, expected.ids)
        assert found.pieces == expected.pieces

    def test_none_is_refused(self, folder: Path) -> None:
        (folder / "tokenizer.json").unlink()
        self.refused(folder, "has no tokenizer that can be read")

    def test_one_of_another_kind_is_read_as_that_of_any_other_architecture(self, folder: Path) -> None:
        (folder / "tokenizer.json").unlink()
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh", "中", "国"]
        (folder / "vocab.txt").write_text("\n".join(words))
        (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
        found = catalog.load(str(folder)).encode(["a中国 b"])
        assert found.pieces == (("[CLS]", "a", "中", "国", "b", "[SEP]"),)

    @pytest.mark.parametrize("content", ["", "{", "[]", '{"model": {"type": "BPE"}}'])
    def test_a_damaged_one_is_refused(self, folder: Path, content: str) -> None:
        (folder / "tokenizer.json").write_text(content)
        self.refused(folder, "expected a tokenizer, found a damaged one")

    def test_one_with_more_entries_than_the_model_is_refused(self, folder: Path) -> None:
        letters = "abcdefghijklmnopqrstuvwxyz"
        words = " ".join(first + second for first, second in product(letters, letters))
        larger = train_tokenizer([words] * 2, TINY.vocabulary + 7)
        larger.save(str(folder / "tokenizer.json"))
        self.refused(folder, "at most 283 entries .*found 290")

    def test_without_special_tokens_nothing_is_added_and_the_last_id_pads(self, folder: Path) -> None:
        path = folder / "tokenizer.json"
        path.write_text(path.read_text().replace("<start>", "<begin>").replace("<pad>", "<blank>"))
        batch = catalog.load(str(folder)).encode(["the", TEXT])
        assert batch.pieces[0][0] == "the"
        assert batch.ids[0, -1] == TINY.vocabulary - 1
        assert not batch.keep[0, -1]

    @pytest.mark.parametrize("special", [["<start>"], ["<pad>", "<start>", "<end>"]])
    def test_a_token_called_start_is_put_before_texts_in_our_own_tokenizers_alone(
        self, folder: Path, special: list[str]
    ) -> None:
        other = Tokenizer(BPE())
        other.train_from_iterator([TEXT], BpeTrainer(special_tokens=special, show_progress=False))
        other.save(str(folder / "tokenizer.json"))
        assert catalog.load(str(folder)).encode([TEXT]).ids[0].tolist() == other.encode(TEXT).ids

    def test_what_its_post_processor_puts_around_a_text_is_read(self, folder: Path) -> None:
        marks = put_marks_around_texts(folder)
        model = catalog.load(str(folder))
        theirs = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))(TEXT).input_ids
        assert (theirs[0], theirs[-1]) == marks
        assert model.encode([TEXT]).ids[0].tolist() == theirs
        assert model.added_after == 1  # generation continues before this one

    def test_one_without_letters_is_read_unless_it_adds_tokens(self, folder: Path) -> None:
        digits = Tokenizer(WordLevel({"0": 0, "1": 1, "<s>": 2}))
        digits.save(str(folder / "tokenizer.json"))
        assert catalog.load(str(folder)).encode(["1"]).ids.tolist() == [[1]]
        digits.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 2)])
        digits.save(str(folder / "tokenizer.json"))
        self.refused(folder, "expected a tokenizer, found a damaged one .*WordLevel error")

    @staticmethod
    def refused(folder: Path, message: str) -> None:
        with pytest.raises(CheckpointError, match=message) as caught:
            catalog.load(str(folder))
        assert str(folder) in str(caught.value)


class TestReading:
    def test_no_text_is_nothing_to_read(self, tiny: Model) -> None:
        with pytest.raises(ValueError, match="at least one text"):
            tokenize(tiny, " \n\t\r\n", "left")

    def test_a_row_for_each_line(self, tiny: Model) -> None:
        reading = tokenize(tiny, "the cat\n\n sat\n", "left")
        assert (reading.rows, reading.rows_left_out) == (["the cat", " sat"], 0)
        assert torch.equal(reading.batch.ids, tiny.encode(["the cat", " sat"], "left").ids)

    def test_too_many_rows(self, tiny: Model) -> None:
        reading = tokenize(tiny, "a\n" * (MAX_ROWS + 3), "right")
        assert (len(reading.rows), reading.batch.ids.shape[0], reading.rows_left_out) == (MAX_ROWS, MAX_ROWS, 3)

    def test_more_tokens_than_a_run_may_keep(self, tiny_folder: Path) -> None:
        model = catalog.load(str(tiny_folder))
        model.most_cells = 2 * 151 + 5
        reading = tokenize(model, "a\n" + "the " * 500 + "\na\na", "left")
        assert reading.batch.ids.shape == (2, 151)
        assert reading.rows_left_out == 2
        model.most_cells = 1
        alone = tokenize(model, "the " * 500 + "\na", "left")
        assert alone.batch.ids.shape == (1, 151)

    def test_what_a_run_may_keep_is_what_a_trace_takes(self, tiny: Model) -> None:
        batch = tiny.encode([TEXT, TEXT])
        assert tiny.run(batch).nbytes() * tiny.most_cells // batch.ids.numel() <= TRACE_BYTES
        assert tiny.run(batch).nbytes() * (tiny.most_cells + 1) // batch.ids.numel() > TRACE_BYTES


class TestLimits:
    def test_limits_hold_for_our_own_layout_too(self, tiny_folder: Path) -> None:
        with pytest.raises(TooLarge, match="UNMASK_MAX_WEIGHTS_GB"):
            catalog.load(str(tiny_folder), settings=Settings(max_weights_gb=1e-6))

    def test_a_link_does_not_climb_out_of_the_root(self, tiny_folder: Path, tmp_path: Path) -> None:
        inside = tmp_path / "root" / "model"
        inside.mkdir(parents=True)
        for path in tiny_folder.iterdir():
            (inside / path.name).symlink_to(path)
        with pytest.raises(CheckpointError, match="links outside"):
            catalog.load(str(inside), settings=Settings(model_root=tmp_path / "root"))
