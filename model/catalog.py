"""The catalog of models: their names, how to fetch and load them, and what each can do within which limits."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tokenizers import Tokenizer
from tokenizers.implementations import ByteLevelBPETokenizer

from i18n import N_, msg
from model import hardware
from model.base import CHECKPOINTS, Model, check_finite, files_key
from model.decoder import DecoderModel
from model.errors import CheckpointError, panics_caught
from model.files import read_regular
from model.gpt2 import SUPPORTED_CONFIG, load_transformer
from model.text import FIRST_ID, PAD_ID, START_ID, BatchTokenizer, added_around
from serving.settings import Settings

if TYPE_CHECKING:
    from model.huggingface.hub import Progress
    from model.huggingface.loading import Report


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A model that the catalog lists by name."""

    name: str
    title: str  # translated where it is shown
    repo: str | None = None  # on the Hugging Face Hub; None for a bundled model
    megabytes: int = 0  # to download
    first_head: tuple[int, int] | None = None  # layer and head to show first


ENTRIES = {
    entry.name: entry
    for entry in (
        Entry(name="story", title=N_("story (built in)"), first_head=(4, 0)),
        Entry(name="dates", title=N_("dates (built in)"), first_head=(0, 1)),
        Entry(name="induction", title=N_("induction (built in)"), first_head=(1, 0)),
        Entry(name="distilgpt2", title="DistilGPT-2", repo="distilbert/distilgpt2", megabytes=353),
        Entry(name="gpt2", title="GPT-2", repo="openai-community/gpt2", megabytes=548, first_head=(5, 1)),
        Entry(name="gpt2-medium", title="GPT-2 medium", repo="openai-community/gpt2-medium", megabytes=1520),
        Entry(name="gpt2-large", title="GPT-2 large", repo="openai-community/gpt2-large", megabytes=3247),
        Entry(name="gpt2-xl", title="GPT-2 XL", repo="openai-community/gpt2-xl", megabytes=6431),
    )
}
PAGE_MODELS = {"digits": N_("Pixels"), "captioner": N_("Images"), "twins": N_("Why causal")}  # bundled too
INDUCTION_STEPS = 1500  # training steps of the induction model
MAX_CONFIG_BYTES = 10**6  # most bytes of a GPT-2's config.json
CONFIGURATIONS = ("config.json", "modules.json")  # sentence-transformers' folders have modules.json
FILES = ("config.json", "tokenizer.json", "model.safetensors")


def offered(settings: Settings | None = None) -> tuple[str, ...]:
    """Return the names to choose from: the catalog's, or those configured for a hosted demo."""
    return (settings or Settings.from_environment()).models or tuple(ENTRIES)


def fetch(name: str, progress: "Progress | None" = None, settings: Settings | None = None) -> Path:
    """Return the folder with the model's files, downloading those that are not on this machine. Raises NotAvailable if
    they cannot be downloaded; CheckpointError for a name that is invalid or not offered here, or for files that are no
    model; its subclass TooLarge for more weights than allowed."""
    settings = settings or Settings.from_environment()
    entry = _entry(name)
    if ships(name):
        return CHECKPOINTS.joinpath(*name.split("-"))
    check_offered(name, settings)
    # the hub's client takes a while to import, and the first page does not need it
    from model.huggingface import checkpoint_files, hub

    if entry is None or entry.repo is None:
        if checkpoint_files.is_path(name):
            return checkpoint_files.allowed_folder(name, settings)
        from model.huggingface import fetching  # imports transformers: models are checked before a download

        return fetching.fetch(name, progress, settings)
    # catalog models are exempt from the limit on others; "gpt2" was an id for years, so caches may have it by name
    checkpoint_files.check_memory(name, entry.megabytes * 1e6)
    return hub.cached(entry.name, FILES) or hub.download(entry.repo, FILES, progress)


def ships(name: str) -> bool:
    """Whether the model's files are part of this project."""
    entry = _entry(name)
    return entry is not None and entry.repo is None


def on_this_machine() -> tuple[str, ...]:
    """Return the catalog's names whose files are bundled or in the local cache. Uses no network."""
    return tuple(filter(is_on_disk, ENTRIES))


def is_on_disk(name: str) -> bool:
    """Whether the model's files are bundled or on this machine. Uses no network."""
    entry = _entry(name)
    if ships(name):
        return True
    from model.huggingface import checkpoint_files, hub

    if entry is not None and entry.repo is not None:
        return hub.cached(entry.name, FILES) is not None or hub.cached(entry.repo, FILES) is not None
    if checkpoint_files.is_path(name):
        return _holds_a_model(name)
    from model.huggingface import fetching

    try:
        return fetching.cached(name) is not None
    except CheckpointError:  # a name that no model can have
        return False


def reads_images(name: str, settings: Settings) -> bool:
    """Whether the model's files on this machine include an image processor. Uses no network."""
    if _entry(name) is not None:
        return False
    from model.huggingface import checkpoint_files, fetching

    try:
        folder = fetching.local_folder(name, settings)
    except CheckpointError:
        return False
    return folder is not None and any((folder / file).is_file() for file in checkpoint_files.PROCESSORS)


def _holds_a_model(path: str) -> bool:
    """Whether path is a GGUF file, or a folder with such a file or a configuration."""
    location = Path(path)
    try:
        location = location.expanduser()
        files = [location] if location.suffix == ".gguf" else location.iterdir()
        return any(one.name in CONFIGURATIONS or one.suffix == ".gguf" for one in files if one.is_file())
    except (OSError, RuntimeError, ValueError):  # no folder, no such user, an impossible name
        return False


def download_size(name: str, settings: Settings | None = None, progress: "Progress | None" = None) -> int:
    """Return the number of bytes that `fetch` would download, 0 if all files are on this machine. Raises as fetch.
    progress: called while the small files that tell the size are downloaded; an exception it raises stops that."""
    if ships(name):
        return 0
    entry = _entry(name)
    from model.huggingface import checkpoint_files

    settings = settings or Settings.from_environment()
    check_offered(name, settings)
    if entry is None or entry.repo is None:
        from model.huggingface import fetching

        return fetching.download_size(name, settings, progress)
    if is_on_disk(name):
        return 0
    checkpoint_files.check_memory(name, entry.megabytes * 1e6)
    return entry.megabytes * 10**6


def inspect(name: str, settings: Settings) -> None:
    """Raise what `load` would raise for a model that is on this machine, as far as its configuration and tokenizer
    show. These files may be untrusted: see serving.backends.inspector."""
    check_offered(name, settings)
    from model.huggingface import checkpoint_files, fetching

    folder = fetching.local_folder(name, settings)
    if folder is not None and checkpoint_files.is_path(name) and _is_ours(name, folder):
        checkpoint_files.check_limits(name, folder, settings)
        fetching.check_tokenizer(name, _tokenizer(checkpoint_files.tokenizer_folder(name, folder)))
    elif folder is not None:
        fetching.inspect(name, folder, settings)


def load(
    name: str, progress: "Progress | None" = None, settings: Settings | None = None, report: "Report" = lambda _: None
) -> Model:
    """Load a model by its catalog name, its id on the Hub, or from a folder. progress: called during a download;
    report: called with what is done after it. An exception from either stops the load. Raises as fetch, and
    CheckpointError if the files cannot be used."""
    settings = settings or Settings.from_environment()
    folder = fetch(name, progress, settings)
    key = files_key(name, folder)  # before they are read: a training run may write new ones meanwhile
    model = _from_folder(name, folder, settings, report)
    model.key = f"{key} {model.hardware.key}"
    return model


def first_head(model: Model) -> tuple[int, int]:
    entry = ENTRIES.get(model.name)
    return (entry and entry.first_head) or (model.num_layers // 2, 0)


def steps(name: str, settings: Settings | None = None) -> dict[str, int | None]:
    """Return the checkpoints of a training run, by the names that `load` takes, with their steps, in order; None: the
    final model. Empty for a name that is no folder of checkpoints."""
    if _entry(name) is not None:
        return {**induction_steps()} if name == "induction" else {}
    from model.huggingface import checkpoint_files

    try:
        known = checkpoint_files.is_path(name)
        return checkpoint_files.steps(name, settings or Settings.from_environment()) if known else {}
    except CheckpointError:  # raised again when it is loaded
        return {}


def logged_losses(name: str, settings: Settings | None = None) -> dict[str, list[tuple[int, float]]]:
    """Return the losses that Hugging Face's Trainer logged in a folder of checkpoints, (step, loss), by "loss" and
    "eval_loss"; empty if none can be read."""
    if _entry(name) is not None:
        return {}
    from model.huggingface import checkpoint_files

    try:
        return checkpoint_files.logged_losses(name, settings or Settings.from_environment())
    except CheckpointError:
        return {}


def at_step(name: str, step: int | None) -> str:
    """Return the name of the checkpoint of folder `name` at a step (default: the last one's); any other model's own
    name. Raises ValueError for a step that does not exist."""
    found = steps(name)
    if step is None:
        return list(found)[-1] if found else name
    named = next((checkpoint for checkpoint, number in found.items() if number == step), None)
    if named is None:
        numbers = [number for number in found.values() if number is not None]
        of = f"a step of {name!r:.200} out of {numbers[:20]}"  # not shown
        wanted = of if numbers else f"no step, {name!r:.200} having none"  # not shown
        raise ValueError(f"expected {wanted}, got {step!r}")  # not shown
    return named


def check_offered(name: str, settings: Settings) -> None:
    """Raise CheckpointError for a name that the operator does not offer, and for a model of another page."""
    page = PAGE_MODELS.get(name.split("-")[0])
    if page and CHECKPOINTS.joinpath(*name.split("-")).is_dir():
        template = N_("{name} has a page of its own, {page}. Choose another model, such as {other}.")
        raise CheckpointError(msg(template, name=name, page=msg(page), other=offered(settings)[0]))
    names = {*settings.models, *(induction_steps() if "induction" in settings.models else ())}
    if settings.models and name not in names:
        listed = ", ".join(settings.models)
        raise CheckpointError(msg("{name} is not available here. Choose one of {names}.", name=name, names=listed))


def check_name(name: str, settings: Settings) -> None:
    """Raise CheckpointError for a name that is not offered here, and for one that no model can have. Uses no
    network."""
    check_offered(name, settings)
    if _entry(name) is None:
        from model.huggingface import fetching

        fetching.local_folder(name, settings)


def induction_steps() -> dict[str, int]:
    """Return the induction model's checkpoints with their steps, in order: "induction-0", … and last "induction"."""
    folder = CHECKPOINTS / "induction"
    steps = sorted(int(path.name) for path in folder.glob("[0-9]*"))
    return {f"induction-{step}": step for step in steps} | {"induction": INDUCTION_STEPS}


def _entry(name: str) -> Entry | None:
    """Return the catalog's entry for a name or a Hub id, or an entry for one of the induction model's steps."""
    if name.startswith("induction-") and name in induction_steps():
        return Entry(name=name, title=name)
    return ENTRIES.get(name) or next((entry for entry in ENTRIES.values() if entry.repo == name), None)


def _is_ours(name: str, folder: Path) -> bool:
    """Whether the folder holds a GPT-2 that our own Transformer computes correctly, and a tokenizer for it."""
    from model.huggingface import checkpoint_files

    try:
        config = json.loads(read_regular(folder / "config.json", MAX_CONFIG_BYTES))
    except (OSError, ValueError, RecursionError):
        return False
    if not isinstance(config, dict):
        return False
    saved_as = config.get("architectures")
    return (
        not name.endswith(".gguf")
        and "model_type" in config
        and not config.get("quantization_config")
        and (folder / "model.safetensors").is_file()
        and not (folder / "adapter_config.json").exists()  # it would be shown without its adapter
        and (not saved_as or (isinstance(saved_as, list) and "GPT2LMHeadModel" in saved_as))  # LM head only
        and all(config.get(name, value) == value for name, value in SUPPORTED_CONFIG.items())
        and bool(_tokenizer_files(checkpoint_files.tokenizer_folder(name, folder)))
    )


def _from_folder(name: str, folder: Path, settings: Settings, report: "Report") -> Model:
    if name == "dates":
        from model.cross_attention import dates  # imported here: no other model needs it

        return dates.load(folder, name)
    if _entry(name) is None:
        from model.huggingface import checkpoint_files

        if not (checkpoint_files.is_path(name) and _is_ours(name, folder)):
            from model.huggingface import adapter  # takes seconds to import, so only when such a model is chosen

            return adapter.from_folder(name, folder, settings, report)
        checkpoint_files.check_limits(name, folder, settings)
        model = _decoder(name, folder, settings)
        model.chats = checkpoint_files.has_chat_template(name, folder)
        return model
    return _decoder(name, folder, settings)


def _decoder(name: str, folder: Path, settings: Settings) -> DecoderModel:
    where = folder
    if not (folder / "tokenizer.json").exists():
        from model.huggingface import checkpoint_files

        where = checkpoint_files.tokenizer_folder(name, folder)
    tokenizer = _tokenizer(where)
    network = load_transformer(folder)
    check_finite(name, network)
    computes = hardware.CPU
    if not ships(name):  # bundled models are small
        computes = hardware.choose_hardware(settings, "F32", sum(weight.numel() for weight in network.parameters()))
        network = network.to(computes.device, computes.dtype)
    entries, known = tokenizer.get_vocab_size(), network.config.vocabulary
    if entries > known:
        template = N_(
            "{folder}: expected a tokenizer of at most {known} entries (the model's vocabulary), found {entries}"
        )
        raise CheckpointError(msg(template, folder=folder, known=known, entries=entries))
    pad, start, first = map(tokenizer.token_to_id, ("<pad>", "<start>", "!"))
    before, end = added_around(tokenizer)
    if not before and (pad, start, first) == (PAD_ID, START_ID, FIRST_ID):  # made by training/; "!" is the first byte
        before = [START_ID]
    max_tokens = min(network.config.context, settings.tokens)
    texts = BatchTokenizer(tokenizer, max_tokens, pad=known - 1 if pad is None else pad, start=before, end=end)
    return DecoderModel(name, network, texts, hardware=computes)


def _tokenizer_files(folder: Path) -> list[str]:
    """Return tokenizer.json, or GPT-2's two files under either of their names; empty if there are none of these."""
    known = (("tokenizer.json",), ("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))
    paths = ([folder / file for file in files] for files in known)
    return next(([str(path) for path in some] for some in paths if all(path.exists() for path in some)), [])


def _tokenizer(folder: Path) -> Tokenizer:
    whole, *merges = _tokenizer_files(folder)
    try:
        if merges:
            return Tokenizer.from_str(ByteLevelBPETokenizer(whole, merges[0]).to_str())
        with panics_caught():
            found = Tokenizer.from_file(whole)
            added_around(found)  # raises for a tokenizer that cannot encode the letter used there
            return found
    except Exception as error:  # noqa: BLE001 - the library raises plain Exception
        template = N_("{folder}: expected a tokenizer, found a damaged one ({error})")
        raise CheckpointError(msg(template, folder=folder, error=error)) from None
