"""What the wheel is: the whole checkout under the one name `unmask`, and as dependencies what requirements.txt names.

In a checkout the rooms are `model`, `viz` and `ui`, which is how the app is read and run. Nobody's site-packages should
have packages of such names: in the wheel they lie in `unmask`, and every import of them says so.
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
CARRIED = (*PACKAGES[:-1], "i18n.py", "pages", "locale", ".streamlit", "app.py")  # PACKAGE itself is there already
LEFT_OUT = {"__pycache__"}


class Wheel(BuildHookInterface):
    """Everything under one name. An editable install is the checkout as it is."""

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
    """One list of what it needs: requirements.txt. The version tested is the least, up to the next major one."""

    def update(self, metadata: dict[str, Any]) -> None:
        lines = (Path(self.root) / "requirements.txt").read_text(encoding="utf-8").splitlines()
        wanted = (line.split("#")[0].strip() for line in lines)
        pairs = (line.split("==") for line in wanted if line)
        metadata["dependencies"] = [f"{name}>={version},<{int(version.split('.')[0]) + 1}" for name, version in pairs]


def sources(root: Path) -> Iterator[Path]:
    """Every file that the wheel holds, as its path in the checkout."""
    for name in (*CARRIED, PACKAGE):
        whole = root / name
        for path in [whole] if whole.is_file() else sorted(whole.rglob("*")):
            if path.is_file() and not LEFT_OUT & set(path.parts):
                yield path.relative_to(root)


def inside(path: Path) -> Path:
    """Where a file of the checkout lies in the wheel."""
    return path if path.parts[0] == PACKAGE else Path(PACKAGE) / path


def renamed(code: str) -> str:
    """The code with its imports of PACKAGES as imports of the package's. Raises ValueError for `import model…`, which
    would bind another name than it says; write `from model import …`."""
    lines = code.splitlines(keepends=True)
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import) and any(alias.name.split(".")[0] in PACKAGES for alias in node.names):
            raise ValueError(f"expected `from {node.names[0].name} import …`, got `{ast.unparse(node)}`")
        if isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").split(".")[0] in PACKAGES:
            line = lines[node.lineno - 1]
            lines[node.lineno - 1] = re.sub(r"\bfrom\s+(?=\w)", f"from {PACKAGE}.", line, count=1)
    return "".join(lines)
