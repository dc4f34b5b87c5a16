"""What AppTest does anew whenever it opens or runs a page, done once."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType

import pytest


@contextmanager
def done_once() -> Iterator[None]:
    """Inside, every installed package's metadata is read for components the first time alone: a third of a second; and
    a script is compiled when it has changed alone, as on a server: a fiftieth of a second.
    """
    from streamlit.components.v2 import manifest_scanner
    from streamlit.runtime.scriptrunner.script_cache import ScriptCache

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
        yield
