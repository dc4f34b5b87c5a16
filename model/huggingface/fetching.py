"""Fetching of a model's files through hub.py: small ones first, which are checked, then weights for loading.py."""

import json
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from huggingface_hub.utils import validate_repo_id
from tokenizers import Tokenizer

from i18n import N_, msg
from model import hardware
from model.errors import CheckpointError, NotAvailable, NotSupported, first_line, panics_caught
from model.huggingface import checkpoint_files, formats, hub
from model.huggingface.described import configuration, without_weights
from model.huggingface.internals import disable_word_cache
from model.huggingface.stacks import stacks_of
from model.huggingface.tokenizer_files import check_vocabulary, read_tokenizers
from model.huggingface.verify import check_runs_on_text, check_type, refusal
from serving.settings import Settings

NO_SUCH_ID = N_(
    "{name!r} is neither a folder nor a model's id on the Hub, such as openai-community/gpt2 ({why}). Check "
    "its spelling."
)
GROWS = N_("{model}: its tokenizer turns one character into {count:,}. Choose another model.")
FAILS_ON_TEXTS = N_("{model}: its tokenizer fails on some texts ({why}). Choose another model.")
AROUND_TEXT = N_("{model}: its tokenizer puts {count:,} tokens around every text. Choose another model.")

MORE_THAN_LISTED = 2**20  # bytes by which a file may exceed its listed size


def fetch(name: str, progress: hub.Progress | None, settings: Settings) -> Path:
    """Return the folder with a model's files. Those of a Hub id are downloaded if they are not on this machine, small
    files first, so that no weights are downloaded of a model that these show to be unusable.

    progress may raise an exception to stop. Raises NotAvailable if the files cannot be downloaded, CheckpointError for
    an invalid name or files that make no model, TooLarge for weights that are too large.
    """
    if folder := local_folder(name, settings):
        return folder
    repository, listed = _repository(name)[0], _checked_files(name, settings, progress)

    def arriving(file: str, done: int, total: int) -> None:
        if max(done, total) > listed[file] + MORE_THAN_LISTED:  # the size that the user agreed to
            template = N_("The download of {repo} was stopped: {file} has more bytes than the Hub lists ({listed:,}).")
            raise NotAvailable(msg(template, repo=repository, file=file, listed=listed[file]))
        if progress is not None:
            progress(file, done, total)

    return hub.download(repository, tuple(listed), arriving)


def download_size(name: str, settings: Settings, progress: hub.Progress | None = None) -> int:
    """Return how many bytes `fetch` would download, 0 if all files are on this machine. Downloads config and tokenizer
    to find out. Raises what fetch raises."""
    return 0 if local_folder(name, settings) else sum(_checked_files(name, settings, progress).values())


def local_folder(name: str, settings: Settings) -> Path | None:
    """Return the folder that a name is a path to, else `cached`. Raises CheckpointError as allowed_folder and `cached`
    do."""
    return checkpoint_files.allowed_folder(name, settings) if checkpoint_files.is_path(name) else cached(name)


def cached(name: str) -> Path | None:
    """Return the folder of a repository's complete model in the local cache, or None. Uses no network."""
    repository, gguf = _repository(name)
    try:
        validate_repo_id(repository)
        if gguf:
            return hub.cached(repository, (gguf,))
    except ValueError as error:  # also for a file name such as "a:b.gguf"
        raise CheckpointError(msg(NO_SUCH_ID, name=name[:100], why=error)) from None
    folder = hub.cached(name)
    modules = None if folder else hub.cached(name, (formats.MODULES,))
    if modules is not None:
        folder = formats.transformer_folder(modules, lambda path: checkpoint_files.read_any_json(name, path))
    return folder if folder is not None and checkpoint_files.is_complete(folder) else None


def _repository(name: str) -> tuple[str, str]:
    """Split a name into the repository's id and the GGUF file that it ends with, "" for none."""
    repository, _, file = name.rpartition("/")
    return (repository, file) if file.endswith(".gguf") else (name, "")


def _checked_files(name: str, settings: Settings, progress: hub.Progress | None = None) -> dict[str, int]:
    """Check a model on the Hub and return its files to load, in order, name -> bytes. Raises what `fetch` raises."""
    files, inside = hub.listing(_repository(name)[0]), ""
    if not formats.gguf_file(name, files) and checkpoint_files.CONFIG not in files and formats.MODULES in files:
        modules = _fetch_small(name, {formats.MODULES: files[formats.MODULES]}, progress) / formats.MODULES
        inside = formats.first_module(checkpoint_files.read_any_json(name, modules))
        files = hub.listing(name, inside) if inside else files

    def fetched(wanted: tuple[str, ...]) -> Path:
        return _fetch_small(name, {inside + file: files[file] for file in wanted}, progress)

    formats.check_files(name, files, lambda file: checkpoint_files.read_json(name, fetched((file,)) / file))
    checkpoint_files.check_config_is_there(name, files)
    weights = checkpoint_files.weight_files(name, files)
    checkpoint_files.check_loaded_size(name, sum(files[file] for file in weights), settings)
    if formats.gguf_file(name, files):  # the file contains its configuration
        return {file: files[file] for file in weights}
    config = checkpoint_files.read_config(name, fetched((checkpoint_files.CONFIG,)))
    check_type(name, config)
    if checkpoint_files.INDEX in weights:
        checkpoint_files.check_shards(name, fetched((checkpoint_files.INDEX,)), weights)
    wanted = checkpoint_files.files_to_load(name, files)
    folder = fetched(tuple(file for file in wanted if file not in weights))
    dtype = str(config.get("dtype") or config.get("torch_dtype"))
    _check_described(name, folder, config, "BF16" if dtype == "bfloat16" else "F32", settings)
    return {inside + file: files[file] for file in wanted}


def _fetch_small(name: str, files: Mapping[str, int], progress: hub.Progress | None) -> Path:
    """Return the folder with these files, name -> listed bytes. Raises TooLarge if the listed or the received bytes
    exceed the limit."""
    checkpoint_files.check_small_files(name, files)

    def arriving(file: str, done: int, total: int) -> None:
        checkpoint_files.check_small_files(name, {file: max(done, total)})
        if progress is not None:
            progress(file, done, total)

    return hub.download(name, tuple(files), arriving)


def inspect(name: str, folder: Path, settings: Settings) -> None:
    """Check a folder as loading it would, as far as its config and its tokenizer allow. Raises what loading raises."""
    config = checkpoint_files.check_folder(name, folder, settings, check_type)
    _check_described(name, folder, config, checkpoint_files.stored_type(name, folder), settings)


def _check_described(name: str, folder: Path, config: dict[str, Any], stored: str, settings: Settings) -> None:
    """Check a config and a tokenizer as loading would. Raises CheckpointError and its subclasses. The size is that of
    the configuration's network, whatever the files contain: missing weights would be created."""
    tokenizers = read_tokenizers(name, folder, config["model_type"])
    for tokenizer in dict.fromkeys(tokenizers):
        check_tokenizer(name, tokenizer)
    try:
        network = without_weights(name, configuration(name, folder))
        check_runs_on_text(stacks_of(network))
        check_vocabulary(name, network, tokenizers[0])
    except NotSupported as error:
        raise refusal(name, config["model_type"], str(error)) from None
    numbers = network.num_parameters()
    dtype = hardware.choose_hardware(settings, stored, numbers).dtype
    checkpoint_files.check_loaded_size(name, numbers * dtype.itemsize, settings)


MAX_NORMALIZER_GROWTH = 100  # most characters that a normalizer may make of one: Unicode's make up to 18
MAX_AROUND = 100  # most tokens that may be added around a text
RUN = 40  # repetitions: enough for an exponentially backtracking regular expression to time out
INSERTED = ("content", "prepend")  # a normalizer's fields with replacement text
PLAIN = [chr(code) for code in range(0x20, 0x10000) if not 0xD800 <= code < 0xE000]  # surrogates are not text
PROSE = "It's 12:30, and THE cat sat on the mat; the dog — 3.14 metres away — said “no”.\n\n\tAnd so on… "  # not shown


def check_tokenizer(name: str, tokenizer: Tokenizer) -> None:
    """Check that a tokenizer can be used; it encodes slowly afterwards. Raises CheckpointError."""
    disable_word_cache(tokenizer)
    if normalizer := tokenizer.normalizer:
        grown = prod(_inserted(json.loads(normalizer.__getstate__())))
        if grown <= MAX_NORMALIZER_GROWTH:  # with a larger factor, trying it would exhaust the memory
            grown = max(len(normalizer.normalize_str(character)) for character in PLAIN)
        if grown > MAX_NORMALIZER_GROWTH:
            raise CheckpointError(msg(GROWS, model=name, count=grown))
    ascii_characters = PLAIN[: 0x7F - 0x20]
    pairs = [one + other for one, other in zip(ascii_characters, [*ascii_characters[1:], " "], strict=True)]
    runs = [one * RUN + other for one in ascii_characters for other in ("b", "!")]  # each followed by another character
    try:
        with panics_caught():
            around = len(tokenizer.encode_batch(["a"])[0].ids)
            tokenizer.encode_batch(["".join(PLAIN), PROSE * 10, *runs, *(pair * RUN + "\n" for pair in pairs)])
    except Exception as error:  # noqa: BLE001 - the library raises plain Exception
        raise CheckpointError(msg(FAILS_ON_TEXTS, model=name, why=first_line(error))) from None
    if around > MAX_AROUND:
        raise CheckpointError(msg(AROUND_TEXT, model=name, count=around))


def _inserted(part: Any) -> list[int]:
    """Return the lengths, at least 1 each, of all replacement texts of a normalizer."""
    if isinstance(part, list):
        return [length for one in part for length in _inserted(one)]
    if not isinstance(part, dict):
        return []
    own = [max(len(text), 1) for name, text in part.items() if name in INSERTED and isinstance(text, str)]
    return own + [length for value in part.values() for length in _inserted(value)]
