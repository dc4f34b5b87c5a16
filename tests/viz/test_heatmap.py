"""The parts of a heatmap: a figure that is made while another thread imports pandas.

python -m pytest tests/viz/test_heatmap.py
"""

import subprocess
import sys
from pathlib import Path

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
