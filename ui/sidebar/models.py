"""Access to models: read-only, shared by all sessions of the process, a few at a time; how a user loads one."""

import shutil
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import TypeVar
from urllib.parse import urlsplit

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from i18n import N_, large, msg, say, say_count, together
from model import catalog
from model.base import Description, Model
from model.errors import CheckpointError, TooLarge
from serving import backends
from serving.job import Job
from serving.loaded_models import LoadedModels
from serving.result_cache import once
from serving.scheduler import LostTwice, Scheduler, TooSlow
from serving.settings import Settings
from ui import results
from ui.explain import ATTENTIONS, title_of
from ui.guard import MODEL_ERRORS, USER_FACING_ERRORS, message_for
from ui.markdown import escaped
from viz.mask_styles import mask_name

EXAMPLES = {
    N_("A repeated phrase"): (
        "Peter blew his silver whistle twice, and Peter blew his silver whistle twice, "  # not shown so
        "and Peter blew his silver"
    ),
    N_("A pronoun"): (
        "The princess gave the old woman her bread, because she was hungry and had walked all day."  # not shown so
    ),
    N_("A list"): (
        "In the basket there were apples, pears, plums, cherries, nuts, a cake and a bottle of milk."  # not shown so
    ),
    N_("Two lines of very different length"): (
        "Once upon a time\n"  # not shown so
        "The little girl ran down the hill, over the bridge and through the wood, until she came to the old mill."
    ),
}
FIRST = next(iter(EXAMPLES.values()))
SPARE_BYTES = 10**9  # bytes of the disk that a download leaves free
SMALL_FILES_SECONDS = 300.0  # to fetch the files that state a download's size; the hub's PATIENCE ends a stalled one
Found = TypeVar("Found")
NO_NAME = msg("Enter a model: its id on the Hugging Face Hub, or a folder")
STOPPED = N_("Loading of {model} was stopped")
FORWARDED = (  # headers that a proxy adds
    "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP", "CF-Connecting-IP", "Via",
)  # fmt: skip


def loaded() -> LoadedModels:
    return results.engine().models


@once
def _inspector() -> Scheduler:
    """Return the scheduler that inspects models, started when a user first chooses one that is not in the catalog."""
    return backends.inspector(Settings.from_environment())


@once
def _downloader() -> Scheduler:
    """Return the scheduler that inspects models to download, in its own process: slow downloads block no one."""
    return backends.inspector(Settings.from_environment(), SMALL_FILES_SECONDS)


def inspected(function: Callable[..., Found], name: str, *more: Hashable) -> Found:
    """Return function(name, settings, *more), of model/, which reads a model's configuration and tokenizer; outside the
    catalog, in a process with limits. Raises what the function raises, CheckpointError at these limits."""
    given = settings()
    if name in catalog.ENTRIES:
        return function(name, given, *more)
    catalog.check_offered(name, given)
    scheduler = _downloader() if function is catalog.download_size else _inspector()
    try:
        return scheduler.ask(Job(function, (name, given, *more)), results.session(), results.raise_if_cancelled)
    except (TooSlow, LostTwice):
        template = N_(
            "{model}: its configuration and its tokenizer take too long to read, or too much memory. Choose another "
            "model."
        )
        raise CheckpointError(say(template, model=name)) from None


@once
def _one_download() -> Lock:
    return Lock()


def settings() -> Settings:
    """Return the operator's settings. If others are served without UNMASK_MODELS, only local models are offered."""
    given = Settings.from_environment()
    if given.models or not (given.shared or _is_from_elsewhere()):
        return given
    return given.model_copy(update={"models": catalog.on_this_machine()})


def not_offered(name: str, instead: Sequence[str] | None = None) -> str:
    """Return a sentence for a link to a model that is not offered. instead: models to choose from; default: all."""
    names = escaped(", ".join(catalog.offered(settings()) if instead is None else instead))
    if not names:
        return say("The link names the model {model}, which is not available here.", model=escaped(name))
    template = N_("The link names the model {model}, which is not available here. Choose one of {names}.")
    return say(template, model=escaped(name), names=names)


def get(name: str) -> Model:
    """Return the model, loaded once; if its files have to be downloaded first, ask the user and end the page.

    Raises what catalog.load raises.
    """
    size = _to_download(name)
    if size:
        _ask(name, size)
        st.stop()
    return _get(name)


def _get(name: str) -> Model:
    """Return a model whose files are here, or may be downloaded: `_to_download` was 0."""
    found = loaded().find(name)
    if found is not None:
        return found
    with st.spinner(say("Loading {model} …", model=escaped(name)), show_time=True):
        if st.session_state.get("agreed_download") == name:
            _download(name)
        if name not in catalog.ENTRIES:
            inspected(catalog.inspect, name)
        slot = st.empty()
        line: DeltaGenerator | None = None

        def show(text: str) -> None:
            """Show what is being done, and a stop button: any click stops this script's waiting."""
            nonlocal line
            if line is None:
                box = slot.container()
                line = box.empty()
                stop = lambda: st.session_state.update(failure=msg(STOPPED, model=name))  # noqa: E731
                box.button(say("Stop loading"), key=f"stop_loading_{name}", icon=":material/stop:", on_click=stop)
            if text:
                line.caption(escaped(text))

        try:
            return loaded().load(name, settings(), show)
        finally:
            slot.empty()


def load_in_turn(name: str) -> Model:
    """Return a model whose files are here, one of many that are shown one after another. Raises as catalog.load."""
    found = loaded().find(name)
    if found is None:
        inspected(catalog.inspect, name)
        found = loaded().load(name, settings(), lambda _: results.raise_if_cancelled())
    return found


def get_or_keep(name: str) -> Model:
    """Return the model; if it cannot be loaded, show the reason, and return the user's previous model."""
    problem = st.session_state.get("failure") if name else NO_NAME
    if problem is None:
        try:
            size = _to_download(name)
            if not size:
                model = _get(name)
                st.session_state.kept_model = name
                return model
        except USER_FACING_ERRORS as error:
            problem = st.session_state.failure = message_for(error)
        else:
            shown = last_shown()
            _ask(name, size, say("Until then this page shows the {model} model.", model=escaped(shown.name)))
            return shown
    shown, template = last_shown(), N_("{problem}. Until then this page shows the {model} model.")
    sentence = say(template, problem=escaped(problem), model=escaped(shown.name))
    st.error(sentence, icon=":material/error:")
    if name:
        st.button(say("Try again"), on_click=forget_failure)
    return shown


def forget_failure() -> None:
    """Let the next rerun try again to load the model that could not be loaded."""
    st.session_state.pop("failure", None)


def _to_download(name: str) -> int:
    """Return the bytes to ask the user about: 0 if the model's files are here, or if the user has agreed.

    Raises TooLarge if the disk has no room for them, and what asking the Hub for their size raises.
    """
    asked_name, size = st.session_state.get("download_size", ("", 0))  # asked once for each name that this user chooses
    if loaded().find(name):
        size = 0
    elif asked_name != name or not size:
        with st.spinner(say("Asking the Hub for {model} …", model=escaped(name)), show_time=True):
            size = inspected(catalog.download_size, name)
        st.session_state.download_size = name, size
    if not size or st.session_state.get("agreed_download") == name:
        return 0
    from huggingface_hub import constants  # for its cache folder; slow to import, and only downloads need it

    folder = Path(constants.HF_HUB_CACHE)
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if size + SPARE_BYTES > free:
        template = N_(
            "{model} has {size:.1f} GB to download, and the disk has {free:.1f} GB free. Choose a smaller model, or "
            "free some space"
        )
        raise TooLarge(say(template, model=name, size=size / 1e9, free=free / 1e9))
    return size


def _ask(name: str, size: int, meanwhile: str = "") -> None:
    """Ask the user to agree to a download. meanwhile: what the page shows until then."""
    template = N_(
        "{name} is not on this machine: {size:,.0f} MB would be downloaded once from the Hugging Face Hub and kept on "
        "disk."
    )
    megabytes = max(size / 1e6, 1)
    st.info(f"{say(template, name=escaped(name), size=megabytes)} {meanwhile}", icon=":material/download:")
    key = "download" if meanwhile else "download_another"  # Compare may ask on both sides
    label, agree = say("Download {size:,.0f} MB", size=megabytes), partial(_agree, name)
    st.button(label, key=key, icon=":material/download:", on_click=agree)


def _agree(name: str | None) -> None:
    st.session_state.agreed_download = name


def _download(name: str) -> None:
    """Download a model, one per process at a time, showing progress; any click ends the script, and the download."""
    lock = _one_download()
    if not lock.acquire(blocking=False):
        raise TooLarge(say("Another download is in progress, and only one runs at a time. Try again when it is done"))
    slot = st.empty()
    try:
        box = slot.container()
        bar = box.empty()
        stop = partial(_agree, None)
        box.button(say("Stop the download"), key="stop_download", icon=":material/stop:", on_click=stop)
        began = monotonic()

        def show(file: str, done: int, total: int) -> None:
            template = N_("{model}: {file}, {done:.0f} of {total:.0f} MB, {seconds:.0f} s")
            progress = {"done": done / 1e6, "total": total / 1e6, "seconds": monotonic() - began}
            share = min(done / total, 1.0) if total else 0.0
            bar.progress(share, say(template, model=escaped(name), file=escaped(file), **progress))

        catalog.fetch(name, show, settings())
        st.session_state.pop("download_size", None)
    finally:
        lock.release()
        slot.empty()


def last_shown() -> Model:
    """Return the model that was shown last or, if its files are gone, the built-in one."""
    try:
        return _get(st.session_state.setdefault("kept_model", "story"))
    except MODEL_ERRORS:
        st.session_state.kept_model = "story"
        return _get("story")


def _is_from_elsewhere() -> bool:
    """Whether the user may be on another machine: the server accepts such requests, or a proxy sent this one."""
    headers = st.context.headers
    asked_for = urlsplit(f"//{headers.get('Host') or 'localhost'}").hostname  # a proxy's own name, if it sends that
    here = all(map(_is_this_machine, (st.get_option("server.address"), asked_for)))
    return not here or any(name in headers for name in FORWARDED)


def _is_this_machine(address: str | None) -> bool:
    try:
        return address == "localhost" or ip_address(address or "").is_loopback
    except ValueError:  # a host name, or no address, which means all of the machine's
        return False


KINDS = {
    "decoder": N_("a decoder of {size} parameters ({architecture})"),
    "encoder": N_("an encoder of {size} parameters ({architecture})"),
    "encoder-decoder": N_("an encoder-decoder of {size} parameters ({architecture})"),
}


def model_found(model: Model) -> str:
    found = model.describe()
    counts = _counts(found.layers) if len(found.layers) > 1 else f"{found.layers['self']}"
    layers, others = sum(found.layers.values()), found.other_layers()
    facts = [
        say(KINDS[found.kind], size=large(found.parameters), architecture=found.architecture),
        say_count("{counts} attention layer", "{counts} attention layers", layers, counts=counts)
        if others
        else say_count("{counts} layer", "{counts} layers", layers, counts=counts),
        _heads(found),
        say("context {positions:,}", positions=found.context),
    ]
    if model.context < found.context:
        facts.append(say("{positions:,} used here", positions=model.context))
    if found.precision:
        facts.append(say(found.precision))

    def mask(name: str) -> str:
        if name not in found.sizes:
            return mask_name(name)
        count, layers = found.sizes[name]
        return say_count(
            "{masks} ({positions} positions, in {count} layer)", "{masks} ({positions} positions, in {count} layers)",
            layers, masks=mask_name(name), positions=count,
        )  # fmt: skip

    masks = say(", ").join(map(mask, found.masks))
    listed = say(", ").join(facts)
    sentence = say("{model}: {facts}. Masks: {masks}.", model=title_of(model), facts=listed, masks=masks)
    return together([sentence, others]).rstrip()


def _heads(found: Description) -> str:
    """Return the numbers of heads in words: one if all attentions have as many, else one for each."""
    parts = found.heads_by_part or {"self": (found.heads, found.key_value_heads)}
    queries = {name: heads for name, (heads, _) in parts.items()}
    keys = {name: heads for name, (_, heads) in parts.items()}
    if keys != queries:
        return say_count(
            "{counts} heads sharing {shared} key-value head", "{counts} heads sharing {shared} key-value heads",
            max(keys.values()), counts=_total(queries), shared=_total(keys),
        )  # fmt: skip
    return say_count("{counts} head", "{counts} heads", max(queries.values()), counts=_total(queries))


def _total(counts: dict[str, int]) -> str:
    return _counts(counts) if len(set(counts.values())) > 1 else f"{next(iter(counts.values()))}"


def _counts(counts: dict[str, int]) -> str:
    return " + ".join(f"{count} {say(ATTENTIONS[name])}" for name, count in counts.items())
