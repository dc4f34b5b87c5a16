"""A model as transformers itself runs it: its own class and kernels, without Unmask's attention.

The adapter runs a network's attention through Unmask's core. A network loaded here shows what it computes alone.
"""

from pathlib import Path

import torch
from transformers import CONFIG_MAPPING, AutoModel, PreTrainedModel

from i18n import N_, msg
from model import catalog
from model.cross_attention.dates import MODEL_TYPE
from model.errors import CheckpointError, NotAvailable, NotSupported
from model.huggingface import checkpoint_files, fetching, hub, loading
from serving.settings import Settings

NOT_LANGUAGE_MODEL = N_("{model} ({kind}) is not a language model: choose one that reads tokens alone")
CUSTOM_CODE = N_("{model}: its architecture ({kind}) needs custom code, which is never run here. Choose another model")
OURS = N_("{model}: it is a network of Unmask's own, and a check runs those of transformers. Choose another model")
UNKNOWN = N_("{model}: its architecture ({kind}) is unknown to transformers. Choose another model")


def find(name: str, settings: Settings, *, download: bool = False, progress: hub.Progress | None = None) -> Path:
    """Return the folder of a model, given by its catalog name, Hub id or folder.

    Nothing is downloaded unless `download` is True. Raises NotAvailable with the size of the missing download;
    CheckpointError for an invalid name or a model that is not offered here or belongs to another page.
    """
    if catalog.ships(name):
        return catalog.fetch(name, None, settings)
    catalog.check_offered(name, settings)
    if checkpoint_files.is_path(name):
        return checkpoint_files.allowed_folder(name, settings)
    entry = catalog.ENTRIES.get(name)
    repo = name if entry is None or entry.repo is None else entry.repo
    if found := fetching.cached(name) or fetching.cached(repo):
        return found
    if download:
        return catalog.fetch(name, progress, settings)
    try:
        files = hub.listing(repo)
        size = sum(files[file] for file in checkpoint_files.weight_files(repo, files))
        more = f": {size / 1e6:,.0f} MB; --download or, in Python, unmask.load fetches them."  # not shown
    except (NotAvailable, CheckpointError) as error:
        more = f". Its size is unknown: {error}"
    why = f"{name}: it is not on this machine, and nothing is downloaded unasked{more}"  # not shown: no page asks
    raise NotAvailable(why)


def load(name: str, folder: Path, settings: Settings, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """Load the network in a folder, in eval mode, with the attention kernel that transformers chooses for it, and
    without its language-model head if the files have none.

    Reads only safetensors and runs no code of the repository. Raises CheckpointError and its subclasses.
    """
    config = checkpoint_files.check_folder(name, folder, settings)
    model_type = config["model_type"]
    if model_type not in CONFIG_MAPPING:
        template = OURS if model_type == MODEL_TYPE else CUSTOM_CODE if "auto_map" in config else UNKNOWN
        raise NotSupported(msg(template, model=name, kind=model_type[:60]))
    try:
        network: PreTrainedModel
        network, found = loading.from_pretrained(name, folder, dtype, settings)
        if found["missing_keys"]:  # transformers would initialize a head at random
            network, found = loading.from_pretrained(name, folder, dtype, settings, AutoModel)
    except NotSupported:
        raise NotSupported(msg(NOT_LANGUAGE_MODEL, model=name, kind=model_type)) from None
    if lost := loading.needed_weights(found["missing_keys"]):
        raise CheckpointError(msg(loading.MISSING_WEIGHTS, model=name, count=len(lost), first=lost[0]))
    loading.merge_adapter(name, network, folder)
    return network
