"""Tests of models with sentencepiece files: they split texts as sentencepiece, with the ids of their own tokenizers.

The files are trained here, on eight sentences; nothing is downloaded.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants
from sentencepiece import SentencePieceProcessor
from sentencepiece.sentencepiece_model_pb2 import ModelProto
from tokenizers import Tokenizer
from transformers import (
    AutoTokenizer,
    Gemma2Config,
    LlamaConfig,
    MarianMTModel,
    MarianTokenizer,
    PreTrainedConfig,
    T5Config,
    XLMRobertaConfig,
)

from model import catalog
from model.errors import CheckpointError
from model.huggingface.adapter import MAX_WRITTEN, HuggingFaceModel
from model.huggingface.tokenizer_files import read_tokenizers
from serving.settings import Settings
from tests.model.huggingface import families, marian
from tests.model.huggingface.fake_hub import no_network
from tests.model.huggingface.listing_hub import ListingHub

SETTINGS = Settings()
KINDS = ("unigram", "bpe")
TEXTS = [
    *marian.ENGLISH,
    *marian.GERMAN,
    "the cat",
    "  the   cat  ",
    "a",
    ".",
    "\tthe\u3000cat\n",
    "the\u00adcat\u200bsat",
    "Ünïcödé — cafe\u0301, ﬁne ㍿ Ａ",
    "漢字 and 😀😀 the cat",
    "who weiß",  # letters that vocab.json lacks
    "▁the cat",
    "balldoorcatmat" * 9,
]


@pytest.fixture(scope="module", params=KINDS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a Marian repository."""
    return marian.save(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    """Return a copy of the repository, to be damaged."""
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def load(folder: Path) -> HuggingFaceModel:
    model = catalog.load(str(folder), settings=SETTINGS)
    assert isinstance(model, HuggingFaceModel)
    return model


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
class TestMarian:
    def test_both_sides_have_the_ids_that_its_own_tokenizer_gives(self, folder: Path) -> None:
        model, reference = load(folder), MarianTokenizer.from_pretrained(folder)
        cut_alike = 0
        for text in [*TEXTS, f"{marian.LANGUAGE} the cat", ">>fra<<the cat", ">> the cat", ">>the\n<< cat"]:
            batch = model.encode([text], targets=[text])
            source, target = reference(text)["input_ids"], reference(text_target=text)["input_ids"]
            assert batch.source.ids.tolist() == [[*source[:-1][: model.context - 1], source[-1]]], text
            assert batch.ids.tolist() == [[reference.pad_token_id, *target[:-1]][: model.context]], text
            cut_alike += source == target
        assert cut_alike < len(TEXTS) / 4

    def test_a_piece_that_the_vocabulary_lacks_is_unknown(self, folder: Path) -> None:
        texts, targets = read_tokenizers("it", folder, "marian")
        for tokenizer in (texts, targets):
            assert tokenizer.encode("漢字").tokens == ["▁", "漢字", "</s>"]
            assert tokenizer.encode("漢字").ids[1:] == [tokenizer.token_to_id("<unk>"), tokenizer.token_to_id("</s>")]
            assert tokenizer.get_vocab() == json.loads((folder / "vocab.json").read_text(encoding="utf-8"))

    def test_labels_are_the_pieces_with_their_spaces(self, folder: Path) -> None:
        batch = load(folder).encode(["The 漢"], targets=["Die Katze"])
        assert "".join(batch.source.pieces[0]).replace("·", " ") == " The <unk></s>"
        assert "".join(batch.pieces[0]).replace("·", " ") == "<pad> Die Katze"

    def test_what_it_writes_is_read_as_text(self, folder: Path) -> None:
        model, reference = load(folder), MarianTokenizer.from_pretrained(folder)
        batch = model.encode(["the cat", "the old king and the cat"], "left")
        for row in range(2):
            ids = batch.ids[row][batch.real(row)][1:].tolist()
            text = batch.read(row)
            assert text == reference.decode(ids, skip_special_tokens=True)
            assert batch.ends[row][-1] == len(text)
            assert list(batch.ends[row]) == sorted(batch.ends[row])

    def test_typed_special_tokens_are_text(self, folder: Path) -> None:
        model = load(folder)
        batch = model.encode(["the </s> <pad>"], targets=["<pad></s>"])
        ends = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
        assert batch.source.ids[0].tolist().count(ends["</s>"]) == 1
        assert ends["<pad>"] not in batch.source.ids[0]
        assert batch.ids[0].tolist().count(ends["<pad>"]) == 1  # the start token
        assert ends["</s>"] not in batch.ids[0]

    def test_a_written_target_is_read_in_the_pieces_of_the_vocabulary(self, folder: Path) -> None:
        model = load(folder)
        batch = model.encode(["The cat sat on the old mat."])
        assert batch.source is not None
        assert batch.ids.shape[1] > 1
        pieces = {token: piece for piece, token in json.loads((folder / "vocab.json").read_text("utf-8")).items()}
        written = batch.ids[0, 1:].tolist()
        assert [pieces[token].replace("▁", "·") for token in written] == [
            piece.removeprefix("◌") for piece in batch.pieces[0][1:]
        ]
        reference = MarianMTModel.from_pretrained(folder).eval()
        reference.generation_config.forced_eos_token_id = None  # it would add a closing token at the limit
        never = [[int(batch.ids[0, 0])]]
        theirs = reference.generate(batch.source.ids, num_beams=1, max_new_tokens=MAX_WRITTEN, bad_words_ids=never)
        assert theirs[0, 1:].tolist()[: len(written)] == written

    def test_a_text_longer_than_the_context_says_what_is_cut(self, folder: Path) -> None:
        model, text = load(folder), "The  cat 漢字 sat ㍿. " * 30
        batch = model.encode([text], targets=[text])
        assert batch.source is not None
        for side in (batch, batch.source):
            assert side.ids.shape[1] == model.context
            assert text.endswith(side.cut[0])
            shown = "".join(side.pieces[0]).removeprefix("<pad>").removesuffix("</s>")
            read = text.removesuffix(side.cut[0])
            assert shown.count("The") == read.count("The") > 1

    def test_a_text_of_spaces_alone_has_no_tokens(self, folder: Path) -> None:
        with pytest.raises(ValueError, match="expected text in every row, got none in row 0"):
            load(folder).encode([" \t "])

    def test_its_own_files_come_before_a_tokenizer_json_which_knows_one_side_alone(self, copy: Path) -> None:
        expected = load(copy).encode(["the cat"], targets=["die Katze"])
        families.save_tokenizer(copy)
        found = load(copy).encode(["the cat"], targets=["die Katze"])
        assert found.pieces == expected.pieces

    def test_what_it_says_of_its_heads(self, folder: Path) -> None:
        assert load(folder).describe().heads_by_part == {"encoder": (3, 3), "decoder": (4, 4), "cross": (4, 4)}


def cut_at(share: float) -> Callable[[Path], None]:
    def cut(folder: Path) -> None:
        path = folder / "source.spm"
        content = path.read_bytes()
        path.write_bytes(content[: int(share * len(content))])

    return cut


def cut_between_two_fields(folder: Path) -> None:
    """Cut the file so that it can be read but splits texts differently: it lacks the normalization rules."""
    content = (folder / "source.spm").read_bytes()
    left = ModelProto.FromString(content)
    left.ClearField("normalizer_spec")
    assert content.startswith(left.SerializeToString())
    (folder / "source.spm").write_bytes(left.SerializeToString())


def vocabulary(**changes: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "vocab.json"
        ids = json.loads(path.read_text(encoding="utf-8")) | changes
        path.write_text(json.dumps({piece: token for piece, token in ids.items() if token is not None}), "utf-8")

    return change


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "truncated": (
        cut_at(0.5),
        r"source\.spm is not a sentencepiece file, or is damaged or truncated. Delete it and fetch",
    ),
    "a little truncated": (cut_at(0.999), r"source\.spm is not a sentencepiece file"),
    "truncated between two fields": (cut_between_two_fields, r"source\.spm is not a sentencepiece file"),
    "empty": (cut_at(0), r"source\.spm is not a sentencepiece file"),
    "a page": (lambda folder: (folder / "target.spm").write_text("<html>"), r"target\.spm is not a sentencepiece file"),
    "no target": (
        lambda folder: (folder / "target.spm").unlink(),
        r"lacks target\.spm, and Marian's tokenizer needs source\.spm, target\.spm, vocab\.json\. Fetch",
    ),
    "no vocabulary": (lambda folder: (folder / "vocab.json").unlink(), r"lacks vocab\.json, and Marian's tokenizer"),
    "vocabulary damaged": (lambda folder: (folder / "vocab.json").write_text("{"), r"vocab\.json cannot be read"),
    "no unknown": (vocabulary(**{"<unk>": None}), r"vocab\.json has no <unk>"),
    "ids of another kind": (vocabulary(the="7"), r"vocab\.json gives 'the' the id '7'"),
    "too high an id": (vocabulary(the=4000), r"ids up to 4000, but its weights have"),
    "two vocabularies": (
        lambda folder: (folder / "tokenizer_config.json").write_text('{"separate_vocabs": true}'),
        r"a vocabulary for its texts and another for its targets",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_wrong_with_a_marian_folder_is_said(copy: Path, damage: str) -> None:
    spoil, sentence = DAMAGES[damage]
    spoil(copy)
    with pytest.raises(CheckpointError, match=sentence) as caught:
        load(copy)
    assert str(caught.value).startswith(str(copy))
    assert "\n" not in str(caught.value)


REPO = "someone/opus-mt-tiny"


@pytest.fixture
def fake(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ListingHub]:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    with ListingHub({REPO: files | {"README.md": b"hello", "tf_model.h5": b"another format"}}) as served:
        served.use(monkeypatch)
        yield served


def test_a_repository_is_downloaded_once(fake: ListingHub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = catalog.load(REPO, settings=SETTINGS)
    files = {request.rpartition("/")[2] for request in fake.requests if "GET" in request and "resolve" in request}
    assert files == {path.name for path in folder.iterdir()}
    no_network(monkeypatch)
    again = catalog.load(REPO, settings=SETTINGS)
    target = ["die Katze"]
    assert again.encode(["the cat"], targets=target).pieces == found.encode(["the cat"], targets=target).pieces


def test_a_repository_with_half_of_marians_files_is_refused_before_anything_is_downloaded(fake: ListingHub) -> None:
    fake.repos = {REPO: {name: content for name, content in fake.repos[REPO].items() if name != "target.spm"}}
    with pytest.raises(CheckpointError, match=rf"{REPO} lacks target\.spm"):
        catalog.load(REPO, settings=SETTINGS)
    assert not any("safetensors" in request for request in fake.requests)


BYTES = {"byte_fallback": True, "normalization_rule_name": "identity", "remove_extra_whitespaces": False}
LLAMA = {"vocab_size": 330, **BYTES}
GEMMA = LLAMA | {"add_dummy_prefix": False, "pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 3}
T5 = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
LONE: dict[str, tuple[PreTrainedConfig, str, dict[str, object], str]] = {  # config, file, training options, tokenizer
    "llama": (LlamaConfig(), "tokenizer.model", LLAMA, "LlamaTokenizer"),
    "gemma2": (Gemma2Config(), "tokenizer.model", GEMMA, "GemmaTokenizer"),
    "t5": (T5Config(), "spiece.model", T5, "T5Tokenizer"),
}
CONVERTED = {"llama": "bpe", "gemma2": "bpe", "t5": "unigram"}  # each family's real kind, converted correctly


class Lone:
    """A folder with one sentencepiece file and no other tokenizer."""

    def __init__(self, folder: Path, name: str, kind: str) -> None:
        config, file, options, tokenizer = LONE[name]
        self.folder, self.name = folder, name
        content = marian.sentencepieces([*marian.ENGLISH, *marian.GERMAN], kind, **options)
        self.processor = SentencePieceProcessor(model_proto=content)
        self.path = folder / file
        self.path.write_bytes(content)
        config.save_pretrained(folder)
        self.say(tokenizer_class=tokenizer)

    def say(self, **fields: object) -> None:
        (self.folder / "tokenizer_config.json").write_text(json.dumps(fields))

    def read(self) -> Tokenizer:
        texts, targets = read_tokenizers("it", self.folder, self.name)
        assert texts is targets
        return texts


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", LONE)
class TestOneFileAlone:
    def test_the_ids_are_those_of_the_sentencepiece_library(self, tmp_path: Path, name: str, kind: str) -> None:
        lone = Lone(tmp_path, name, kind)
        tokenizer = lone.read()
        for text in [*TEXTS, "", "a </s> b", "<s>", f"{marian.LANGUAGE} the"]:
            encoding = tokenizer.encode(text, add_special_tokens=False)
            assert encoding.ids == lone.processor.encode(text), text
            ends = [end for _, end in encoding.offsets]
            assert ends == sorted(ends)
            assert max(ends, default=0) <= len(text)
            assert [tokenizer.id_to_token(token) for token in encoding.ids if token != lone.processor.unk_id()] == [
                piece
                for piece, token in zip(encoding.tokens, encoding.ids, strict=True)
                if token != lone.processor.unk_id()
            ]

    def test_what_the_family_puts_around_a_text(self, tmp_path: Path, name: str, kind: str) -> None:
        lone = Lone(tmp_path, name, kind)
        inside = lone.processor.encode("the cat")
        start, end = lone.processor.bos_id(), lone.processor.eos_id()
        assert lone.read().encode("the cat").ids == ([*inside, end] if name == "t5" else [start, *inside])
        lone.say(add_bos_token=None, add_eos_token=None)
        assert lone.read().encode("the cat").ids == ([*inside, end] if name == "t5" else [start, *inside])
        lone.say(add_bos_token=False, add_eos_token=True)
        assert lone.read().encode("the cat").ids == [*inside, end]
        lone.say(add_bos_token=True)
        if name == "t5":  # its file has no start token
            assert lone.read().encode("the cat").ids == [*inside, end]

    def test_tokens_added_behind_the_files_own_have_names(self, tmp_path: Path, name: str, kind: str) -> None:
        lone = Lone(tmp_path, name, kind)
        known = lone.processor.get_piece_size()
        lone.say(added_tokens_decoder={"1": {"content": "</end>"}, str(known + 2): {"content": "<extra_id_0>"}})
        tokenizer = lone.read()
        assert tokenizer.id_to_token(1) == lone.processor.id_to_piece(1)
        assert tokenizer.id_to_token(known + 2) == "<extra_id_0>"


@pytest.mark.parametrize("name", LONE)
def test_transformers_own_conversion_gives_the_same_ids(tmp_path: Path, name: str) -> None:
    lone = Lone(tmp_path, name, CONVERTED[name])
    ours, theirs = lone.read(), AutoTokenizer.from_pretrained(tmp_path, local_files_only=True)
    for text in [*marian.ENGLISH, *marian.GERMAN, "the cat", "漢字 and 😀😀 the cat"]:
        assert ours.encode(text, add_special_tokens=False).ids == theirs(text, add_special_tokens=False)["input_ids"]


def test_a_llama_with_nothing_but_its_tokenizer_model(tmp_path: Path) -> None:
    lone = Lone(tmp_path, "llama", "bpe")
    families.random_network("llama", LlamaConfig(**families.WIDE | {"vocab_size": 330})).save_pretrained(tmp_path)
    model = load(tmp_path)
    batch = model.encode(["the cat\n漢"])
    assert batch.ids.tolist() == [[lone.processor.bos_id(), *lone.processor.encode("the cat\n漢")]]
    assert "".join(batch.pieces[0]) == "<s>·the·cat⏎⟨E6⟩⟨BC⟩⟨A2⟩"
    assert model.run(batch).num_layers == 3
    lone.path.write_bytes(lone.path.read_bytes()[:500])
    with pytest.raises(
        CheckpointError, match=r"tokenizer\.model is not a sentencepiece file, or is damaged or truncated"
    ):
        load(tmp_path)


def test_a_chat_template_beside_a_tokenizer_model_alone_is_not_offered(tmp_path: Path) -> None:
    """The special tokens that the template writes would be read as text."""
    lone = Lone(tmp_path, "llama", "bpe")
    lone.say(chat_template="{% for message in messages %}<s>{{ message['content'] }}{% endfor %}")
    families.random_network("llama", LlamaConfig(**families.WIDE | {"vocab_size": 330})).save_pretrained(tmp_path)
    model = load(tmp_path)
    assert not model.chats
    with pytest.raises(CheckpointError, match="takes no messages"):
        model.encode_rendered("<s>the cat")
    families.save_tokenizer(tmp_path)  # a tokenizer.json, which takes precedence
    lone.say(chat_template="{% for message in messages %}<s>{{ message['content'] }}{% endfor %}")
    assert load(tmp_path).chats


def test_a_family_that_numbers_its_pieces_otherwise_is_refused(tmp_path: Path) -> None:
    families.random_network("roberta", XLMRobertaConfig(**families.PLAIN)).save_pretrained(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(marian.sentencepieces(marian.ENGLISH, "unigram"))
    with pytest.raises(CheckpointError, match=r"\(xlm-roberta\) has its tokenizer only in tokenizer\.model.*llama"):
        load(tmp_path)
