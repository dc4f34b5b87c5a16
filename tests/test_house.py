"""Tests of the project's structure: which folder may import which, and how long a file may be.

Imports are read from the source, which includes those inside functions, and from a fresh interpreter, which includes
those through other modules.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("model", "mask_check", "lessons", "serving", "viz", "ui", "pages", "unmask", "tests")
MAX_LINES = 400
MAX_MODULES = 20  # directly in a folder of the three largest layers
FOREIGN = {  # packages that a layer must not import
    "model": {"streamlit", "plotly"},
    "mask_check": {"streamlit", "plotly"},
    "lessons": {"streamlit", "plotly"},
    "viz": {"streamlit", "torch"},
}
LEAVES = {"serving.settings", "serving.machine"}  # these import none of the project's modules; model/ may import them
BELOW = {  # a layer -> the project's layers that it may import
    "i18n": set[str](),
    "model": {"model", "i18n"},
    "mask_check": {"mask_check", "model", "i18n"},
    "lessons": {"lessons", "model", "i18n"},
    "serving": {"serving", "model", "i18n"},
    "viz": {"viz", "model", "lessons", "mask_check", "i18n"},
    "ui": {"ui", "viz", "serving", "lessons", "mask_check", "model", "i18n"},
    "pages": {"ui", "viz", "serving", "lessons", "mask_check", "model", "i18n"},
    "app": {"ui", "viz", "serving", "lessons", "mask_check", "model", "i18n"},
    "serve": {"ui", "viz", "serving", "lessons", "mask_check", "model", "i18n"},
    "unmask": {"unmask", "viz", "serving", "lessons", "mask_check", "model", "i18n"},
}
LANGUAGE_FREE = {"model", "mask_check", "serving"}  # these make messages, which the pages translate
MESSAGES = re.compile(r"i18n\.(N_|Message|msg\w*)")
SHARED = {"heads", "atlas", "attribution", "huggingface"}  # folders of model/ that belong to no single page

PRIVATE = {  # a package's undocumented parts, as a pattern -> the only file or folder that may name them
    r"streamlit(\.| import )(runtime|web|proto|elements|navigation)|_streamlit_xsrf|data-testid|"
    r"\bst(Main|Header)\b|\.st[A-Z]\w+|block-container|modebar|shapelayer|static/js": "ui/streamlit_internals/",
    r"_full(Layout|Data)|\b(l2p|p2l|c2p|p2c)\b|\._(categories|offset|length)\b|"
    r"[xy]tick\b": "viz/components/plotly_internals.js",
    r"_attn_implementation_internal|_(model|config)_mapping|\._from_config|_MAPPING_NAMES|_can_compile_fullgraph|"
    r"Loading weights": "model/huggingface/internals.py",
    r"ray\.[\w.]*\b_\w+": "serving/ray_cluster.py",
}


@dataclass(frozen=True)
class Import:
    """One import of a project's module by another. now: at import time, not in a function or for types only."""

    importer: str
    imported: str
    now: bool

    def __str__(self) -> str:
        return f"{self.importer} imports {self.imported}"


@pytest.mark.parametrize(("folder", "forbidden"), FOREIGN.items())
def test_no_file_of_a_folder_names_what_it_may_not_import(folder: str, forbidden: set[str]) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files, f"no Python file in {folder}/"
    found = [
        f"{file.relative_to(ROOT)} imports {name}"
        for file in files
        for name in imported_packages(file.read_text(encoding="utf-8"))
        if name in forbidden
    ]
    assert not found


def test_every_layer_imports_only_those_below_it() -> None:
    found = [one for one in imports() if top(one.imported) not in BELOW[top(one.importer)]]
    assert not [str(one) for one in found if one.imported not in LEAVES]


def test_what_is_made_for_all_readers_is_in_no_reader_s_language() -> None:
    found = [
        f"{module} imports {name}"
        for module, file in modules().items()
        if top(module) in LANGUAGE_FREE
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in names(node)
        if top(name) == "i18n"
    ]
    assert found, "not even messages"
    assert not [one for one in found if not MESSAGES.fullmatch(one.rpartition(" ")[2])]


def test_the_leaves_import_nothing_of_ours_but_leaves() -> None:
    assert not [str(one) for one in imports() if one.importer in LEAVES and one.imported not in LEAVES]


def test_nothing_that_runs_in_the_app_imports_how_the_models_were_made() -> None:
    """The exception is the command that trains a model again, which imports it on request."""
    found = [one for one in imports() if inside(one.imported, "model.training")]
    assert found, "not even training/ itself"
    outside = [one for one in found if not inside(one.importer, "model.training")]
    assert {one.importer for one in outside} == {"unmask.command"}
    assert not [str(one) for one in outside if one.now]


def test_the_core_imports_no_folder() -> None:
    """Exceptions: the catalog imports each model on request, and the linearized run belongs to what a model can do."""
    found = [one for one in imports() if is_core(one.importer) and folder_of(one.imported)]
    assert {one.importer for one in found} == {"model.catalog", "model.base", "model.decoder"}
    assert {one.imported for one in found if one.now} == {"model.attribution.linearized_run"}


def test_a_page_s_folder_imports_no_other_page_s() -> None:
    found = [one for one in imports() if is_page(folder_of(one.importer)) and is_page(folder_of(one.imported))]
    assert found, "no file of a page's folder imports another of the same"
    assert not [str(one) for one in found if folder_of(one.importer) != folder_of(one.imported)]


def test_no_module_imports_itself_by_way_of_others() -> None:
    """This includes imports inside functions, whose cycles would appear only when they run."""
    graph: dict[str, set[str]] = {}
    for statement in imports():
        graph.setdefault(statement.importer, set()).add(statement.imported)
    assert circle(graph) == []


def test_no_file_is_long() -> None:
    lengths = {name: len(text.splitlines()) for name, text in sources(tests=True).items()}
    assert len(lengths) > 200
    assert not {name: lines for name, lines in lengths.items() if lines > MAX_LINES}


@pytest.mark.parametrize("folder", ["model", "viz", "ui"])
def test_a_layer_has_few_modules_beside_its_folders(folder: str) -> None:
    found = [file.stem for file in (ROOT / folder).glob("*.py") if file.stem != "__init__"]
    assert 10 < len(found) <= MAX_MODULES


def test_no_two_classes_have_one_name() -> None:
    """This includes classes inside functions and other classes."""
    files_of: dict[str, list[str]] = {}
    for file in modules().values():
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                files_of.setdefault(node.name, []).append(file.relative_to(ROOT).as_posix())
    assert len(files_of) > 200
    assert not {name: found for name, found in files_of.items() if len(found) > 1}


@pytest.mark.parametrize(("pattern", "home"), PRIVATE.items())
def test_private_parts_of_packages_are_named_in_one_file_or_folder_each(pattern: str, home: str) -> None:
    """`make upgrade-check` runs the tests of these files, so that an upgrade breaks one of them and names the part."""
    found = {f"{name}: {match.group()}" for name, text in sources().items() for match in re.finditer(pattern, text)}
    assert [one for one in found if one.startswith(home)], "not even there"
    assert not [one for one in found if not one.startswith(home)]


def sources(*, tests: bool = False) -> dict[str, str]:
    """Return the text of every source file by its path. tests: whether to include the tests."""
    rooms = [ROOT / room for room in ROOMS if tests or room != "tests"]
    files = [
        *ROOT.glob("*.py"),
        *(file for room in rooms for kind in ("py", "js", "css") for file in room.rglob(f"*.{kind}")),
    ]
    return {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in files}


def test_the_catalog_starts_without_transformers_and_without_a_page() -> None:
    assert loaded_by("import model.catalog") & {"torch", "transformers", "streamlit", "plotly"} == {"torch"}


def test_a_model_of_ours_is_run_without_transformers() -> None:
    """Importing transformers takes twice as long as all other imports together."""
    assert "transformers" not in loaded_by("import unmask\nunmask.load('story').run('a').head(4, 0)")


def test_pictures_are_made_without_torch() -> None:
    loaded = loaded_by("".join(f"import {name}\n" for name in modules() if top(name) == "viz"))
    assert "numpy" in loaded
    assert not loaded & {"torch", "streamlit", "transformers"}


def imported_packages(source: str) -> Iterator[str]:
    """Yield the top-level name of every absolute import in the source, including those in functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.partition(".")[0]


@cache
def modules() -> dict[str, Path]:
    """Return every module of the app by its dotted name; a folder stands for its __init__."""
    files = [
        ROOT / "app.py",
        ROOT / "serve.py",
        ROOT / "i18n.py",
        *(file for layer in BELOW for file in sorted((ROOT / layer).rglob("*.py"))),
    ]
    return {".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file for file in files}


@cache
def imports() -> tuple[Import, ...]:
    """Return all imports of the project's modules by each other."""
    ours = set(modules())
    found = [imports_of(name, file.read_text(encoding="utf-8"), ours) for name, file in modules().items()]
    return tuple(one for some in found for one in some)


def imports_of(importer: str, source: str, ours: set[str]) -> Iterator[Import]:
    """Yield the project's modules that the source imports: for `from model import masks`, model.masks."""

    def visit(node: ast.AST, now: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import | ast.ImportFrom):
                for name in names(child):
                    module = name if name in ours else name.rpartition(".")[0]
                    if module in ours:
                        yield Import(importer, module, now)
            later = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            types = isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING")
            yield from visit(child, now and not later and not types)

    yield from visit(ast.parse(source), True)


def names(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [name.name for name in node.names]
    assert node.level == 0, "imports here are absolute"
    return [f"{node.module}.{name.name}" for name in node.names]


def top(module: str) -> str:
    return module.partition(".")[0]


def inside(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def folder_of(module: str) -> str | None:
    """Return the folder of model/ that contains the module, or None."""
    layer, _, rest = module.partition(".")
    folder = top(rest)
    return folder if layer == "model" and folder and (ROOT / "model" / folder).is_dir() else None


def is_core(module: str) -> bool:
    return top(module) == "model" and folder_of(module) is None


def is_page(folder: str | None) -> bool:
    return folder is not None and folder not in SHARED | {"training"}


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Return the first cycle of imports, from a module back to itself, or []."""
    done: set[str] = set()

    def follow(node: str, path: list[str]) -> list[str]:
        if node in path:
            return [*path[path.index(node) :], node]
        if node in done:
            return []
        for other in sorted(graph.get(node, ())):
            if found := follow(other, [*path, node]):
                return found
        done.add(node)
        return []

    return next((found for node in sorted(graph) if (found := follow(node, []))), [])


def loaded_by(statements: str) -> set[str]:
    """Return the modules that a fresh interpreter has loaded after these statements."""
    program = f"{statements}\nimport sys\nprint(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return set(ran.stdout.split())
