"""Checks of a model's files by names, sizes and config, before fetching.py downloads and loading.py reads them."""

import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from i18n import N_, msg, msg_all
from model import hardware
from model.errors import CheckpointError, TooLarge, first_line
from model.files import read_regular
from model.huggingface import formats
from serving import machine
from serving.settings import Settings

CONFIG = "config.json"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
CHAT_TEMPLATE = "chat_template.jinja"
MARIAN = ("source.spm", "target.spm", "vocab.json")  # tried first: targets have their own tokenizer
SENTENCEPIECE_FILES = ("tokenizer.model", "spiece.model")
TOKENIZERS = (  # the files of each tokenizer format; the first complete one is read
    MARIAN,
    ("tokenizer.json",),
    ("vocab.json", "merges.txt"),
    ("vocab.txt",),
    *((file,) for file in SENTENCEPIECE_FILES),
)
PROCESSORS = ("preprocessor_config.json", "processor_config.json")  # files of image processors
EXTRAS = ("generation_config.json", TOKENIZER_CONFIG, "special_tokens_map.json", "added_tokens.json",
          CHAT_TEMPLATE, *PROCESSORS)  # fmt: skip
SMALL = {CONFIG, *EXTRAS, *(part for tokenizer in TOKENIZERS for part in tokenizer)}
MAX_SMALL_BYTES = 50_000_000  # most bytes of all small files together
MAX_LAYERS = 1_000
MAX_STEPS = 1_000  # most checkpoints of a training run
TRAINER_STATE, LOGGED = "trainer_state.json", ("loss", "eval_loss")  # written beside each checkpoint
MAX_LOGGED = 2_000  # most points of a loss curve
STEP = re.compile(r"checkpoint-(\d{1,9})")  # a folder name, as Hugging Face's Trainer writes it
LAYERS = re.compile(r"n(um)?_(encoder_|decoder_|hidden_)?layers?|(encoder|decoder)_layers")  # in config.json
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
SENTENCE_TRANSFORMERS = N_(
    "{model} is a sentence-transformers model that keeps its transformer in a folder of its own. Get all of it (hf "
    "download {model} --local-dir FOLDER), and choose that folder."
)
NO_CONFIG = N_(
    "{model} has no {file}, so it is not a model in Hugging Face's format. Choose a repository or a folder that has "
    "one, as save_pretrained writes it."
)
MARIAN_LACKS = N_(
    "{model} lacks {files}, and Marian's tokenizer needs {all}. Fetch the files again, or choose another repository."
)
NO_TOKENIZER = N_(
    "{model} has no tokenizer that can be read (tokenizer.json, vocab.txt, Marian's .spm files or the like). Save its "
    "fast tokenizer beside its weights, or choose another repository."
)
ADAPTER_LACKS = N_(
    "{model} contains an adapter (LoRA) without {file}. Fetch that file, or merge the two (peft's merge_and_unload) "
    "and choose the result."
)
PICKLES_ONLY = N_(
    "{model} has its weights only as pickle files, which can run any code when they are opened; Unmask reads only "
    "safetensors. Choose a repository with model.safetensors, or convert it."
)
OTHER_NAME = N_(
    "{model} has its weights as {other}, but Unmask reads {file} (or its numbered parts). Rename the file if it "
    "contains the whole model, or choose another repository."
)
NO_WEIGHTS = N_("{model} has no weights in safetensors format ({file}). Choose a repository or a folder that has them.")
SMALL_FILES_TOO_LARGE = N_(
    "{model}: its configuration and tokenizer take {size:,.0f} MB, and at most {most:,.0f} MB of them are read. "
    "Choose another model."
)
OVER_LIMIT = N_(
    "{model} needs {size} of memory for its weights, and the limit is {limit}. Choose a smaller model, or raise "
    "UNMASK_MAX_WEIGHTS_GB."
)
OVER_MEMORY = N_(
    "{model} needs {size} of memory for its weights, and {free} are free. Choose a smaller model, or free some memory."
)
NOT_REGULAR = N_("{model}: {file} is not a regular file, and only regular files are read. Choose another folder.")
SHARD_MISSING = N_(
    "{model}: {file} names {missing!r}, which is not there. Fetch the files again, or choose another model."
)
LINK_OUTSIDE = N_(
    "{model}: {file} links outside the folder that models are loaded from. Put the file itself in its place."
)
TOO_MANY_LAYERS = N_(
    "{model}: config.json has {count:,} layers ({field}), and at most {most:,} are supported. Choose another model."
)
NO_ARCHITECTURES = N_(
    '{model}: expected "architectures" in config.json to be a list of names, got {got}. Correct it, or fetch the file '
    "again."
)
UNREADABLE = N_("{model}: {file} cannot be read ({why}). Fetch the file again.")


def is_path(name: str) -> bool:
    """Whether a name is the path of a folder or GGUF file: it exists, or cannot be a Hub id."""
    return name.startswith(("/", "~", ".")) or "\\" in name or (name != "" and _is_folder(_folder(name)))


def _folder(name: str) -> Path:
    """Return the folder that a path names, or that contains its GGUF file."""
    return Path(name).parent if name.endswith(".gguf") else Path(name)


def files_to_load(name: str, files: Mapping[str, int]) -> tuple[str, ...]:
    """Return the files, of name -> bytes, that a model is loaded from, weights last. Raises CheckpointError."""
    check_config_is_there(name, files)
    weights = weight_files(name, files)
    if formats.gguf_file(name, files):
        return weights
    wanted = {CONFIG, *EXTRAS, *tokenizer_files(name, files)}
    if formats.has_adapter_and_base(files):
        wanted.add(formats.ADAPTER)
    return (*sorted(wanted & set(files)), *weights)


def check_config_is_there(name: str, files: Collection[str]) -> None:
    """Check that there is a config.json, or a GGUF file, which contains its own config. Raises CheckpointError."""
    if gguf := formats.gguf_file(name, files):
        if gguf not in files:
            raise CheckpointError(msg("{model}: there is no file {file}. Check its name.", model=name, file=gguf))
    elif CONFIG not in files and formats.MODULES in files and not is_path(name):
        raise CheckpointError(msg(SENTENCE_TRANSFORMERS, model=name))
    elif CONFIG not in files:
        raise CheckpointError(msg(NO_CONFIG, model=name, file=CONFIG))


def tokenizer_files(name: str, files: Collection[str]) -> tuple[str, ...]:
    """Return the files that a tokenizer is read from. Raises CheckpointError if there is none."""
    if found := _tokenizer_in(name, files):
        return found
    if "source.spm" in files or "target.spm" in files:
        lacking = [part for part in MARIAN if part not in files]
        raise CheckpointError(msg(MARIAN_LACKS, model=name, files=msg_all(lacking), all=", ".join(MARIAN)))
    raise CheckpointError(msg(NO_TOKENIZER, model=name))


def _tokenizer_in(name: str, files: Collection[str]) -> tuple[str, ...]:
    """Return the files that a tokenizer is read from; empty if there is none."""
    gguf = formats.gguf_file(name, files)
    return next((one for one in TOKENIZERS if all(part in files for part in one)), (gguf,) if gguf else ())


def weight_files(name: str, files: Mapping[str, int]) -> tuple[str, ...]:
    """Return the safetensors files, the index of several, and an adapter's; or a GGUF file. Raises CheckpointError."""
    if gguf := formats.gguf_file(name, files):
        return (gguf,)
    adapter = (formats.ADAPTER_WEIGHTS,) if formats.has_adapter_and_base(files) else ()
    if adapter and formats.ADAPTER_WEIGHTS not in files:
        raise CheckpointError(msg(ADAPTER_LACKS, model=name, file=formats.ADAPTER_WEIGHTS))
    if WEIGHTS in files:
        return (WEIGHTS, *adapter)
    safetensors = sorted(file for file in files if file.endswith(".safetensors"))
    shards = [file for file in safetensors if file.startswith("model-")]
    if INDEX in files and shards:
        return (INDEX, *shards, *adapter)
    if variant := formats.variant(files):
        return (f"model.{variant}.safetensors", *adapter)
    if any(file.endswith(PICKLES) for file in files):
        raise CheckpointError(msg(PICKLES_ONLY, model=name))
    if others := [file for file in safetensors if not re.match(r"model-\d", file)]:
        raise CheckpointError(msg(OTHER_NAME, model=name, other=others[0], file=WEIGHTS))
    raise CheckpointError(msg(NO_WEIGHTS, model=name, file=WEIGHTS))


def check_small_files(name: str, files: Mapping[str, int]) -> None:
    """Check the total size of configuration and tokenizer files, name -> bytes. Raises TooLarge."""
    size = sum(files.values())
    if size > MAX_SMALL_BYTES:
        raise TooLarge(msg(SMALL_FILES_TOO_LARGE, model=name, size=size / 1e6, most=MAX_SMALL_BYTES / 1e6))


def check_loaded_size(name: str, size: float, settings: Settings) -> None:
    """Check that weights of `size` bytes in memory are within the limit and the free memory. Raises TooLarge."""
    if size > settings.max_weights_bytes:
        raise TooLarge(msg(OVER_LIMIT, model=name, size=_gigabytes(size), limit=_gigabytes(settings.max_weights_bytes)))
    check_memory(name, size)


def check_memory(name: str, size: float) -> None:
    """Check that `size` bytes are within the free memory. Raises TooLarge."""
    free = machine.free_bytes()
    if size > free:
        raise TooLarge(msg(OVER_MEMORY, model=name, size=_gigabytes(size), free=_gigabytes(free)))


def local_files(folder: Path) -> dict[str, int]:
    """Return the files directly in a folder, name -> bytes."""
    return {path.name: path.stat().st_size for path in folder.iterdir() if path.is_file()}


def is_complete(folder: Path) -> bool:
    """Whether the folder contains a whole model."""
    try:
        files_to_load(str(folder), local_files(folder))
        return all((folder / shard).is_file() for shard in _shards(str(folder), folder))
    except CheckpointError:
        return False


def allowed_folder(name: str, settings: Settings) -> Path:
    """Return a user's folder, links resolved. Raises CheckpointError for none, or one outside the allowed root."""
    try:
        folder = _folder(name).expanduser().resolve()
    except (OSError, RuntimeError, ValueError):  # no such user, circular links, an impossible name
        why = msg("{path!r} is not a folder on this machine. Check the path.", path=name[:200])
        raise CheckpointError(why) from None
    root = settings.model_root
    if root is not None and not folder.is_relative_to(root.expanduser().resolve()):
        template = N_("{path} is outside the folder that this server loads models from. Choose one inside it.")
        raise CheckpointError(msg(template, path=name))
    if not _is_folder(folder):
        raise CheckpointError(msg("{path} is not a folder on this machine. Check the path.", path=name[:200]))
    inside = formats.transformer_folder(folder, lambda path: read_any_json(name, path))
    odd = next((path.name for path in inside.iterdir() if path.exists() and not (path.is_file() or path.is_dir())), "")
    if odd:
        raise CheckpointError(msg(NOT_REGULAR, model=name, file=odd))
    return inside


def steps(name: str, settings: Settings) -> dict[str, int | None]:
    """Return the training checkpoints in a folder, by name, with their steps, in order; then the model of the folder
    itself, if it holds one, with None. Empty for any other folder. Raises CheckpointError as allowed_folder does.
    """
    folder = allowed_folder(name, settings)
    matches = (STEP.fullmatch(path.name) for path in folder.iterdir() if path.is_dir())
    numbers = sorted(int(match[1]) for match in matches if match)[-MAX_STEPS:]
    found: dict[str, int | None] = {str(Path(name) / f"checkpoint-{number}"): number for number in numbers}
    return found | {name: None} if found and (folder / CONFIG).is_file() else found


def logged_losses(name: str, settings: Settings) -> dict[str, list[tuple[int, float]]]:
    """Return the losses that Hugging Face's Trainer logged, (step, loss) in order, by "loss" (training) and
    "eval_loss": from the trainer_state.json of a folder of checkpoints, or of the last one. Raises CheckpointError as
    steps and read_json do."""
    files = (allowed_folder(folder, settings) / TRAINER_STATE for folder in (name, *reversed(steps(name, settings))))
    file = next((path for path in files if path.is_file() and not path.is_symlink()), None)
    history = read_json(name, file).get("log_history") if file else None
    entries = [entry for entry in history if isinstance(entry, dict)] if isinstance(history, list) else []
    found = {}
    for kind in LOGGED:
        pairs = {}
        for entry in entries:
            step, loss = entry.get("step"), entry.get(kind)
            if type(step) is int and 0 <= step < 10**9 and type(loss) is float and math.isfinite(loss):
                pairs[step] = loss
        found[kind] = sorted(pairs.items())[:: len(pairs) // MAX_LOGGED + 1]
    return found


def tokenizer_folder(name: str, folder: Path) -> Path:
    """Return the folder of a model's tokenizer: its own, or the parent of a Trainer checkpoint that has none."""
    above = folder.parent
    here = _tokenizer_in(name, local_files(folder))
    if here or not STEP.fullmatch(folder.name) or not _tokenizer_in(name, local_files(above)):
        return folder
    check_small_files(name, {file: size for file, size in local_files(above).items() if file in SMALL})
    return above


def has_chat_template(name: str, folder: Path) -> bool:
    """Whether a model's files, or those beside its tokenizer, have a usable chat template: SentencePiece tokenizers
    would read a template's special tokens as text. Raises CheckpointError for files that cannot be read."""
    folder = tokenizer_folder(name, folder)
    files = local_files(folder)
    if set(SENTENCEPIECE_FILES) & set(files) and tokenizer_files(name, files)[0] in SENTENCEPIECE_FILES:
        return False
    gguf = formats.gguf_file(name, files)
    if CHAT_TEMPLATE in files or (gguf and formats.gguf_header(name, folder / gguf).chat_template):
        return True
    return TOKENIZER_CONFIG in files and bool(read_json(name, folder / TOKENIZER_CONFIG).get("chat_template"))


def check_folder(
    name: str, folder: Path, settings: Settings, check: Callable[[str, dict[str, Any]], None] = lambda *_: None
) -> dict[str, Any]:
    """Check all that can be checked of a network without loading it, and return its config.json. check: called with the
    config before the weights are looked for; may raise. Raises CheckpointError or TooLarge, also (if name is a path)
    for files that are outside the allowed root once links are resolved."""
    settings = settings if is_path(name) else settings.model_copy(update={"model_root": None})
    files = local_files(folder)
    formats.check_files(name, files, lambda file: read_json(name, folder / file))
    check_config_is_there(name, files)
    check_links_and_small_files(name, folder, settings)
    config = read_config(name, folder, formats.gguf_file(name, files))
    check(name, config)
    check_limits(name, folder, settings)
    check_shards(name, folder, weight_files(name, files))
    return config


def check_shards(name: str, folder: Path, files: Sequence[str]) -> None:
    """Check that the shards named by the folder's index, if it is among `files`, are there. Raises CheckpointError."""
    if INDEX in files and (missing := sorted(set(_shards(name, folder)) - set(files))):
        raise CheckpointError(msg(SHARD_MISSING, model=name, file=INDEX, missing=missing[0]))


def check_limits(name: str, folder: Path, settings: Settings) -> None:
    """Check links and sizes. Raises CheckpointError for links outside the allowed root, and TooLarge."""
    check_links_and_small_files(name, folder, settings)
    numbers = count_weights(name, folder)
    dtype = hardware.choose_hardware(settings, stored_type(name, folder), numbers).dtype
    check_loaded_size(name, numbers * dtype.itemsize, settings)


def check_links_and_small_files(name: str, folder: Path, settings: Settings) -> None:
    """Check for links outside the allowed root (CheckpointError) and small files that are too large (TooLarge)."""
    files = local_files(folder)
    check_small_files(name, {file: size for file, size in files.items() if file in SMALL})
    if settings.model_root is not None:
        root = settings.model_root.expanduser().resolve()
        above = tokenizer_folder(name, folder)
        if not above.resolve().is_relative_to(root):
            raise CheckpointError(msg(NO_TOKENIZER, model=name))
        paths = [*(folder / file for file in files), *(above / file for file in local_files(above) if file in SMALL)]
        if outside := [path.name for path in paths if not path.resolve().is_relative_to(root)]:
            raise CheckpointError(msg(LINK_OUTSIDE, model=name, file=outside[0]))


def count_weights(name: str, folder: Path) -> int:
    """Return how many numbers the weight files contain."""
    weights = [folder / file for file in weight_files(name, local_files(folder)) if not file.endswith(".json")]
    if weights[0].suffix == ".gguf":
        return formats.gguf_header(name, weights[0]).numbers
    return sum(formats.count_safetensors_weights(name, file) for file in weights)


def read_config(name: str, folder: Path, gguf: str = "") -> dict[str, Any]:
    """Return config.json, or a GGUF file's equivalent. Raises CheckpointError for a damaged one, one without a model
    type, or one whose "architectures" is not a list of names."""
    config = formats.gguf_config(name, folder / gguf) if gguf else read_json(name, folder / CONFIG)
    if not isinstance(config.get("model_type"), str):
        template = N_("{model}: config.json has no model_type, so its architecture is unknown.")
        raise CheckpointError(msg(template, model=name))
    saved_as = config.get("architectures") or []
    if not isinstance(saved_as, list) or not all(isinstance(one, str) for one in saved_as):
        raise CheckpointError(msg(NO_ARCHITECTURES, model=name, got=repr(saved_as)[:80]))
    for part in (config, *(value for value in config.values() if isinstance(value, dict))):
        for field, count in part.items():
            if LAYERS.fullmatch(field) and isinstance(count, int | float) and count > MAX_LAYERS:
                raise CheckpointError(msg(TOO_MANY_LAYERS, model=name, count=count, field=field, most=MAX_LAYERS))
    return config


def read_json(name: str, path: Path) -> dict[str, Any]:
    """Read a JSON object. Raises CheckpointError for any other file."""
    content = read_any_json(name, path)
    if not isinstance(content, dict):
        template = N_("{model}: {file} is not a JSON object. Fetch the file again.")
        raise CheckpointError(msg(template, model=name, file=path.name))
    return content


def read_any_json(name: str, path: Path) -> Any:
    """Read any JSON value. Raises CheckpointError for any other file, or one that is too large."""
    try:
        return json.loads(read_regular(path, MAX_SMALL_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(msg(UNREADABLE, model=name, file=path.name, why=first_line(error))) from None


def _shards(name: str, folder: Path) -> list[str]:
    if (folder / WEIGHTS).is_file() or not (folder / INDEX).is_file():
        return []
    weight_map = read_json(name, folder / INDEX).get("weight_map")
    if not isinstance(weight_map, dict):
        raise CheckpointError(msg("{model}: {file} has no weight_map. Fetch the files again.", model=name, file=INDEX))
    return [str(shard) for shard in weight_map.values()]


def stored_type(name: str, folder: Path) -> str:
    """Return the type of a folder's weights as safetensors, GGUF or bitsandbytes names it: "F32", "BF16", "Q4_K", "NF4"
    … Raises CheckpointError for integer weights that no quantization config explains."""
    files = local_files(folder)
    weights = [folder / file for file in weight_files(name, files) if not file.endswith(".json")]
    if weights[0].suffix == ".gguf":
        return formats.gguf_header(name, weights[0]).stored
    found = formats.safetensors_type(name, weights)
    if found in formats.FOUR_BITS:
        return found
    config = read_json(name, folder / CONFIG) if CONFIG in files else {}
    if not (formats.quantization_of(config) or config.get("quantization")):
        formats.check_no_integers(name, weights)
    return formats.bitsandbytes_type(config) or found


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # an impossible name
        return False


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e9:.3g} GB"
