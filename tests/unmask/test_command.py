"""Tests of the command python -m unmask: what it prints, and its exit status."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest.mock import patch
from xml.etree import ElementTree

import pytest
import transformers as hf
from torch import nn

import unmask
from mask_check.findings import VERDICTS
from mask_check.samples import SAMPLES
from model.errors import CheckpointError, NotAvailable
from model.huggingface import own_network
from tests.model.huggingface.families import save
from unmask import command
from unmask.__main__ import main

ROOT = Path(__file__).parents[2]


def test_the_model_that_ships_obeys(capsys: pytest.CaptureFixture) -> None:
    assert main(["check", "story"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("story (GPT2LMHeadModel): decoder, float32, kernel sdpa, 3.51 M parameters")
    assert VERDICTS[0].format(lengths="24, 130 and 247") in text
    documented = (ROOT / "docs/mask-check.md").read_text(encoding="utf-8")
    assert [line for line in plain(text) if line not in plain(documented)] == []
    passes = str(re.search(r"\d+ forward passes", text)[0])
    for page in ("README.md", "docs/benchmarks.md"):
        assert passes in (ROOT / page).read_text(encoding="utf-8")


def plain(text: str) -> list[str]:
    """Return the lines without what differs between machines: sizes of violations, and seconds."""
    return [" ".join(re.sub(r"[\d.e-]+ of [\d.e-]+ |\S+ s\.$", "", line).split()) for line in text.splitlines()]


def test_a_check_of_nothing_asks_for_a_model(capsys: pytest.CaptureFixture) -> None:
    assert main(["check"]) == 2
    assert capsys.readouterr().err.startswith("expected a model, sample:KEY or file.py:NAME")


def test_a_leak_is_status_1(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    junit = tmp_path / "obeys.xml"
    assert main(["check", "sample:sdpa", "--json", "--junit", str(junit)]) == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["obeys"]
    assert found["findings"][0]["words"] in (ROOT / "docs/mask-check.md").read_text(encoding="utf-8")
    assert ElementTree.parse(junit).getroot().get("failures") == str(
        sum(finding["verdict"] == "broken" for finding in found["findings"])
    )


MODULE = """import sys, torch
class Mine(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Embedding(7, 5), torch.nn.Linear(5, 7))
        print("number of parameters: 0.00M")
class Ends(Mine):
    def forward(self, ids):
        sys.exit(0)
"""


def test_what_a_module_prints_is_not_in_the_report(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(MODULE)
    status = main(["check", f"{file}:Mine", "--json"])
    printed = capsys.readouterr()
    assert json.loads(printed.out)["obeys"] == (status == 0)
    assert "number of parameters" in printed.err
    assert main(["check", f"{file}:Ends"]) == 2
    assert f"{file}:Ends could not be checked: it called sys.exit(0)." in capsys.readouterr().err


@pytest.mark.parametrize(("model", "status", "verdict"), [("sample:sdpa", 1, 1), ("story", 2, 0)])
def test_a_report_that_cannot_be_written_is_printed(
    model: str, status: int, verdict: int, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    junit = tmp_path / "nowhere" / "obeys.xml"
    assert main(["check", model, "--junit", str(junit)]) == status
    printed = capsys.readouterr()
    assert VERDICTS[verdict].split("{")[0] in printed.out
    assert printed.err == f"{junit} was not written (No such file or directory).\n"


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (["unmask", "samples"], 0),
        (["unmask", "check", "sample:sdpa"], 1),
        (["unmask", "check", "--explain", "reach"], 0),
        (["unmask", "page", "-o", "page.html"], 0),
        (["model.atlas", "story", "--random", "-o", "atlas.parquet"], 0),
    ],
)
def test_whoever_reads_it_may_stop(command: list[str], status: int, tmp_path: Path) -> None:
    """`head` does this: what was printed is lost, but neither the exit status nor the files."""
    read, write = os.pipe()
    os.close(read)
    where = {"cwd": tmp_path, "env": os.environ | {"PYTHONPATH": str(ROOT)}}
    ran = subprocess.run([sys.executable, "-m", *command], stdout=write, stderr=subprocess.PIPE, text=True, **where)
    os.close(write)
    assert (ran.returncode, ran.stderr) == (status, "")


@pytest.mark.parametrize(
    ("model", "path", "encoding", "status", "words"),
    [
        ("sound", "/dev/full", "utf-8", 2, "It was not printed (No space left on device).\n"),
        ("sdpa", "/dev/full", "utf-8", 1, "It was not printed (No space left on device).\n"),
        ("sound", os.devnull, "ascii", 0, ""),
        ("sound", os.devnull, "cp1252", 0, ""),
    ],
)
def test_a_report_that_is_not_printed_is_no_leak(model: str, path: str, encoding: str, status: int, words: str) -> None:
    command = [sys.executable, "-m", "unmask", "check", f"sample:{model}", "--picture"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": encoding}
    with Path(path).open("w") as file:
        ran = subprocess.run(command, stdout=file, stderr=subprocess.PIPE, text=True, env=environment)
    assert (ran.returncode, ran.stderr) == (status, words)


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    folder = save("mistral", tmp_path / "mistral")
    for file in folder.glob("*token*"):
        file.unlink()
    assert main(["check", str(folder), "--dtype", "bfloat16", "--picture"]) == 0


def test_another_mask_than_it_declares(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["check", str(save("bert", tmp_path / "bert")), "--mask", "causal"]) == 1
    assert "which its mask blocks" in capsys.readouterr().out


def wrong(tmp_path: Path, kind: str) -> str:
    """Make a folder that cannot be checked, and return its path."""
    folder = save("gpt2", tmp_path / kind)
    config = folder / "config.json"
    content = json.loads(config.read_text())
    if kind == "own code":
        config.write_text(json.dumps(content | {"model_type": "mine", "auto_map": {"AutoModel": "mine.Model"}}))
        (folder / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').write('')")
    elif kind == "truncated":
        weights = folder / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:200])
    elif kind == "image":
        size = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
        hf.ViTModel(hf.ViTConfig(**size, image_size=8, patch_size=4)).save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("own code", "needs custom code, which is never run here"),
        ("truncated", "damaged or truncated"),
        ("image", "not a language model"),
    ],
)
def test_what_cannot_be_run_is_status_2(kind: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["check", wrong(tmp_path, kind)]) == 2
    printed = capsys.readouterr()
    assert words in printed.err
    assert "Traceback" not in printed.err
    assert len(printed.err.strip().splitlines()) == 1
    assert not printed.out
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["patient:nobody"],
        ["/no/such/folder"],
        ["story", "--mask", "sideways"],
        ["story", "--length", "1"],
        ["patient:sound", "--mask", "window:99999999999999999999"],
        ["patient:sound", "--length", "100000"],
        ["patient:sound", "--seed", "-1"],
    ],
)
def test_what_means_nothing_is_status_2(arguments: list[str], capsys: pytest.CaptureFixture) -> None:
    assert main(["check", *arguments]) == 2
    assert "could not be checked" in capsys.readouterr().err


def test_nothing_is_downloaded(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    folder = save("gpt2", tmp_path / "gpt2")
    names = []

    def fetch(name: str, *_: object) -> Path:
        names.append(name)
        return folder

    monkeypatch.setattr(own_network.catalog, "fetch", fetch)
    monkeypatch.setattr(own_network.hub, "cached", lambda *_: None)
    files = {"config.json": 500, "model.safetensors": 1_234_000_000}
    monkeypatch.setattr(own_network.hub, "listing", lambda _: files)
    assert main(["check", "some/model"]) == 2
    text = "it is not on this machine, and nothing is downloaded unasked: 1,234 MB; --download or, in Python, "
    assert f"some/model could not be checked: {text}" in capsys.readouterr().err
    with pytest.raises(NotAvailable, match=f"^some/model: {text}unmask.load fetches them.$"):
        unmask.check("some/model")
    assert not names
    assert main(["check", "some/model", "--download"]) == 0
    assert names == ["some/model"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("digits", "digits has a page of its own, Pixels"),
        ("captioner", "captioner has a page of its own, Images"),
        ("twins-with_mask", "twins-with_mask has a page of its own, Why causal"),
        ("dates", "dates: it is a network of Unmask's own, and a check runs those of transformers"),
    ],
)
def test_what_ships_and_is_not_checked_says_why(name: str, words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        unmask.check(name)


def test_the_steps_of_the_induction_model_are_checked_as_it_is() -> None:
    assert unmask.check("induction-0", length=8, tokens=8).name.startswith("induction-0 ")


def test_without_a_network_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    def listing(_: str) -> dict[str, int]:
        raise NotAvailable("the Hub cannot be reached. To get it, go online once")

    monkeypatch.setattr(own_network.hub, "cached", lambda *_: None)
    monkeypatch.setattr(own_network.hub, "listing", listing)
    assert main(["check", "some/model"]) == 2
    assert "Its size is unknown: the Hub cannot be reached. To get it, go online once" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["samples", "patients"])
def test_the_samples_are_listed(command: str, capsys: pytest.CaptureFixture) -> None:
    assert main([command]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(SAMPLES)
    assert any(line.startswith("sample:sdpa") and "breaks kernels" in line for line in lines)


def test_an_unknown_command_is_told_those_there_are(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit):
        main(["nonsense"])
    text = capsys.readouterr().err
    assert "invalid choice: 'nonsense'" in text
    assert "samples" in text
    assert "patients" not in text


def test_a_forward_that_does_not_end_is_stopped() -> None:
    program = (
        "import time\nfrom unmask.command import stopped_after\n"
        "with stopped_after(0.2):\n    time.sleep(60)\n    print('not reached')"
    )
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=50)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "still running after 0 s; allow more time with --seconds, or shorter rows" in ran.stderr


def test_a_forward_may_take_as_long_again_as_the_slowest_before_it() -> None:
    program = (
        "import time\nfrom unmask.command import stopped_after\nnow = time.monotonic()\n"
        "with stopped_after(0.1, [now, now + 50, now + 51]):\n    time.sleep(1)\n    print('reached')"
    )
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=50)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "reached\n", "")


def test_help_needs_no_torch() -> None:
    program = "import sys, unmask.__main__ as m\ntry: m.main(['check', '--help'])\nexcept SystemExit: pass\n"
    program += "print('torch' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert "exit status" in ran.stdout
    assert ran.stdout.splitlines()[-1] == "False"


def test_more_tokens_than_the_model_has_positions(capsys: pytest.CaptureFixture) -> None:
    for many in ("300", "100000"):
        assert main(["check", "story", "--length", many]) == 2
        assert "expected at most 256 tokens, which is its max_position_embeddings, got" in capsys.readouterr().err


@pytest.mark.parametrize("limit", ["nan", "inf", "-1", "0", "soon"])
def test_a_time_limit_is_a_number_of_seconds(limit: str, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["check", "story", "--seconds", limit])
    assert ended.value.code == 2
    assert "argument --seconds: " in capsys.readouterr().err


def test_a_report_is_html(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    assert main(["report", "--text", "Once", "-o", str(tmp_path / "a.png")]) == 2
    assert "expected a file of HTML (.html), got 'png'" in capsys.readouterr().err
    assert main(["report", "--text", "Once \udce9", "-o", str(tmp_path / "a.html")]) == 0  # a byte that is not UTF-8


def test_a_report_makes_no_weights_that_its_files_lack(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    config = save("llama", tmp_path) / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"vocab_size": 10**9}))
    assert main(["report", "--model", str(tmp_path), "--text", "the cat", "-o", str(tmp_path / "a.html")]) == 2
    assert "GB of memory for its weights, and the limit is 3.0 GB" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("story --text nowhere", "No model was written: expected text files"),
        ("induction --steps 0", "--steps above 0"),
        ("captioner --version foo", "argument --version: invalid choice: 'foo'"),
    ],
)
def test_a_training_that_cannot_be_is_a_sentence(arguments: str, text: str, capsys: pytest.CaptureFixture) -> None:
    with suppress(SystemExit):  # raised by argparse
        assert main(["train", *arguments.split()]) == 2
    assert text in capsys.readouterr().err


def test_a_shorter_training_is_not_mixed_with_a_longer_one(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.set_num_threads", lambda count: None)  # it would affect the other tests
    words = "train induction --steps 1 --width 16 --heads 2 --rows 2 --out"
    arguments = [*words.split(), str(tmp_path)]
    assert main(arguments) == 0
    assert f"\n{tmp_path.name}: loss" in capsys.readouterr().out
    (tmp_path / "50").mkdir()
    assert main(arguments) == 2
    assert f"{tmp_path} has step 50" in capsys.readouterr().err
    assert (tmp_path / "50").exists()


def test_making_a_model_takes_none_of_the_check_s_seconds() -> None:
    done: list[str] = []

    @contextmanager
    def limited(_seconds: float, _begun: list[float]) -> Iterator[None]:
        done.append("check")
        yield

    def make(*_asked: object, **_options: object) -> nn.Module:
        done.append("make")
        return nn.Sequential(nn.Embedding(7, 5), nn.Linear(5, 7))

    with patch.object(command, "stopped_after", limited), patch.object(command, "network_of", make):
        main(["check", "net.py:make", "--seconds", "20"])
    assert done == ["make", "check"]
