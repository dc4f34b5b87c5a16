"""Build hooks of the wheel: the whole checkout as one package `unmask`, with the dependencies in requirements.txt.

In a checkout the packages are `model`, `viz`, `ui` …, from which the app runs. Such names do not belong in
site-packages: in the wheel these packages are inside `unmask`, and every import of them is rewritten.
"""

import ast
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

PACKAGE = "unmask"
PACKAGES = ("model", "mask_check", "lessons", "serving", "viz", "ui", "i18n")  # inside PACKAGE in the wheel
CARRIED = (*PACKAGES[:-1], "i18n.py", "pages", "locale", ".streamlit", "app.py")  # besides PACKAGE itself
LEFT_OUT = {"__pycache__"}


class Wheel(BuildHookInterface):
    """A build hook that puts everything into one package. An editable install is the checkout as it is."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or version == "editable":
            return
        self.made = Path(tempfile.mkdtemp(prefix="unmask_wheel_"))
        for path in sources(Path(self.root)):
            target = self.made / inside(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".py":
                target.write_text(renamed((Path(self.root) / path).read_text(encoding="utf-8")), encoding="utf-8")
            else:
                shutil.copyfile(Path(self.root) / path, target)
        build_data["force_include"][str(self.made)] = "/"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "made"):
            shutil.rmtree(self.made)


class Dependencies(MetadataHookInterface):
    """A metadata hook: dependencies are those in requirements.txt, from the tested version up to the next major one."""

    def update(self, metadata: dict[str, Any]) -> None:
        lines = (Path(self.root) / "requirements.txt").read_text(encoding="utf-8").splitlines()
        wanted = (line.split("#")[0].strip() for line in lines)
        pairs = (line.split("==") for line in wanted if line)
        metadata["dependencies"] = [f"{name}>={version},<{int(version.split('.')[0]) + 1}" for name, version in pairs]


def sources(root: Path) -> Iterator[Path]:
    """Yield every file of the wheel, as its path in the checkout."""
    for name in (*CARRIED, PACKAGE):
        whole = root / name
        for path in [whole] if whole.is_file() else sorted(whole.rglob("*")):
            if path.is_file() and not LEFT_OUT & set(path.parts):
                yield path.relative_to(root)


def inside(path: Path) -> Path:
    """Return the path in the wheel of a file of the checkout."""
    return path if path.parts[0] == PACKAGE else Path(PACKAGE) / path


def renamed(code: str) -> str:
    """Return the code with imports from PACKAGES as imports from PACKAGE. Raises ValueError for `import model…`, which
    would bind another name; write `from model import …`."""
    lines = code.splitlines(keepends=True)
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import) and any(alias.name.split(".")[0] in PACKAGES for alias in node.names):
            raise ValueError(f"expected `from {node.names[0].name} import …`, got `{ast.unparse(node)}`")
        if isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").split(".")[0] in PACKAGES:
            line = lines[node.lineno - 1]
            lines[node.lineno - 1] = re.sub(r"\bfrom\s+(?=\w)", f"from {PACKAGE}.", line, count=1)
    return "".join(lines)
