"""Tests of the parts of a heatmap, and of a figure that is made while another thread imports pandas."""

import subprocess
import sys
from pathlib import Path

from viz import palette
from viz.heatmap import LABEL_SIZE, margin
from viz.palette import MARGIN

ROOT = Path(__file__).parents[2]
SLOW_PANDAS = "import time\ntime.sleep(1)\nclass Series: pass\nclass Index: pass\nclass DataFrame: pass\n"
CODE = """
import sys, threading, time
import numpy as np
from viz.heatmap import figure
assert "pandas" not in sys.modules
sys.path.insert(0, sys.argv[1])
threading.Thread(target=__import__, args=("pandas",)).start()
while "pandas" not in sys.modules:
    time.sleep(0.001)
assert not hasattr(sys.modules["pandas"], "Series")
drawn = figure([{"type": "heatmap", "z": np.eye(2)}], {}).to_dict()
print(drawn["data"][0]["type"])
"""


def test_a_figure_waits_for_pandas_that_another_thread_imports(tmp_path: Path) -> None:
    (tmp_path / "pandas").mkdir()
    (tmp_path / "pandas" / "__init__.py").write_text(SLOW_PANDAS, encoding="utf-8")
    command = [sys.executable, "-c", CODE, str(tmp_path)]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert found.stdout.strip() == "heatmap", found.stderr


class TestMargin:
    def test_is_what_the_longest_label_needs_and_no_more(self) -> None:
        narrow, wide = (margin([label] * 3, ["a"] * 3) for label in ("ab", "abcdefgh"))
        assert narrow["l"] < wide["l"] <= MARGIN["l"]
        assert narrow["b"] == wide["b"] < MARGIN["b"]
        assert narrow["r"] == wide["r"] == MARGIN["r"]

    def test_a_chinese_character_is_wider_than_a_letter(self) -> None:
        assert margin(["小猫"], ["a"])["l"] > margin(["ab"], ["a"])["l"]

    def test_has_an_upper_bound(self) -> None:
        assert palette.margin(["很" * 40], ["很" * 40], LABEL_SIZE) == MARGIN

    def test_has_room_for_what_is_shown_of_a_long_chinese_name(self) -> None:
        shown = margin(["很" * 40], ["很" * 40])
        assert shown["l"] == shown["b"] < MARGIN["l"], "nothing was capped"
