"""Helpers for tests with AppTest: steps cached that it repeats for every page, charts sent, and keys of widgets."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from streamlit.testing.v1 import AppTest


@contextmanager
def done_once() -> Iterator[None]:
    """Cache three slow steps that AppTest repeats whenever it opens or runs a page.

    Installed packages' metadata is searched for components once: a third of a second; a script is compiled only when it
    has changed, as on a server: a fiftieth; loading a model starts no collection of all imported objects: half one.
    """
    from streamlit.components.v2 import manifest_scanner
    from streamlit.runtime.scriptrunner.script_cache import ScriptCache

    from serving import loaded_models

    compiled = ScriptCache.get_bytecode

    @cache
    def code_of(script: str, _changed: int, _size: int) -> CodeType:
        return compiled(ScriptCache(), script)

    def get_bytecode(_: ScriptCache, script: str) -> CodeType:
        file = Path(script).stat()
        return code_of(script, file.st_mtime_ns, file.st_size)

    with pytest.MonkeyPatch.context() as patch:
        scan = cache(manifest_scanner.scan_component_manifests)
        patch.setattr(manifest_scanner, "scan_component_manifests", scan)
        patch.setattr(ScriptCache, "get_bytecode", get_bytecode)
        patch.setattr(loaded_models, "gc", SimpleNamespace(unfreeze=int, collect=int, freeze=int))
        yield


def charts(app: "AppTest") -> dict[str, dict[str, Any]]:
    """Return what the function `chart` of ui/page.py sends to the browser, by its key, with the figure as data."""
    drawn = [one.proto for one in app.get("bidi_component") if one.proto.component_name == "unmask_chart"]
    sent = {proto.id.rpartition("-")[2]: json.loads(proto.json) for proto in drawn}
    return {key: data | {"figure": json.loads(data["figure"])} for key, data in sent.items()}


def check_tables(app: "AppTest") -> None:
    """Assert that a page offers the numbers of every chart and canvas as a table, and that every chart has numbers."""
    from viz.components import VIEWS
    from viz.figure_table import figure_tables
    from viz.heatmap import figure

    offered = {one.proto.popover.id.rpartition("-")[2] for one in app.get("popover")}
    canvases = {f"unmask_{view}" for view in VIEWS}
    drawn = [one.proto for one in app.get("bidi_component") if one.proto.component_name in canvases]
    assert {f"numbers_of_{proto.id.rpartition('-')[2]}" for proto in drawn} <= offered
    for key, data in charts(app).items():
        assert f"numbers_of_{key}" in offered
        tables = figure_tables(figure(data["figure"]["data"], data["figure"]["layout"]))
        assert tables, key
        assert all(one.table.size for one in tables), key


def key_of(app: "AppTest", choice: str) -> str:
    """Return the key of the widget of an option: its name, with a number if the page also sets it (ui/widgets.py)."""
    state = app.session_state
    return state["bound_keys"].get(choice, choice) if "bound_keys" in state else choice
