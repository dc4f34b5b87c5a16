"""The Mask check page without a browser: models, patients, and what cannot be checked."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
import torch
from transformers import AutoModel

from mask_check.check import check
from mask_check.findings import VERDICTS, CheckReport, verdict_of
from mask_check.samples import SAMPLES
from tests.model.huggingface.families import save, save_tokenizer
from tests.pages.page import Page, array
from tests.pages.test_chinese import english, texts
from ui import mask_check, results
from ui.heads import head

OBEYS = VERDICTS[0].partition("{")[0]


class MaskCheckPage(Page):
    """One user's page."""

    SCRIPT = "pages/mask_check.py"

    def cells(self, name: str) -> np.ndarray:
        """Return the cells of one trace of the figure, bool [T,T]."""
        (figure,) = self.figures()
        return ~np.isnan(array(self.trace(figure, name)["z"]))


class Checked:
    """A wrapper of `check` that records, by name, the checked module, the names of other arguments, and the report."""

    def __init__(self) -> None:
        self.modules: dict[str, torch.nn.Module] = {}
        self.asked: dict[str, set[str]] = {}
        self.reports: dict[str, CheckReport] = {}

    def __call__(self, module: torch.nn.Module, *, name: str, **more: Any) -> CheckReport:
        self.modules[name], self.asked[name] = module, set(more)
        self.reports[name] = check(module, name=name, **more)
        return self.reports[name]


@pytest.fixture(scope="module", autouse=True)
def checked() -> Iterator[Checked]:
    """Record what the page itself checks: the patients."""
    results.result_cache().forget(lambda _: True)  # other tests of this process may have checked some of them
    with pytest.MonkeyPatch.context() as patch:
        kept = Checked()
        patch.setattr("mask_check.check.check", kept)
        yield kept


@pytest.fixture(scope="module")
def patients(checked: Checked) -> MaskCheckPage:
    """Return a page for tests that only choose patients."""
    return MaskCheckPage(what="patient", patient="future")


def same(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    """Whether two modules have the same class, mode, weights and number type."""
    here, there = one.state_dict(), other.state_dict()
    alike = type(one) is type(other) and repr(one) == repr(other) and one.training == other.training
    return alike and here.keys() == there.keys() and all(torch.equal(here[key], there[key]) for key in here)


@pytest.mark.slow
def test_the_first_view_is_a_model_that_obeys() -> None:
    page = MaskCheckPage()
    assert OBEYS in page.words()
    assert "story (GPT2LMHeadModel) · decoder · float32 · sdpa" in page.words()
    np.testing.assert_array_equal(page.cells("measured"), np.tri(len(page.cells("measured")), dtype=bool))
    np.testing.assert_array_equal(page.cells("open"), page.cells("measured"))


@pytest.mark.slow
@pytest.mark.parametrize("key", [*{sample.law: key for key, sample in SAMPLES.items()}.values()])
def test_a_sample_of_every_law_is_shown_as_it_was_measured(patients: MaskCheckPage, checked: Checked, key: str) -> None:
    patients.set(patient=key)
    name = SAMPLES[key].name
    report = checked.reports[name]
    assert same(checked.modules[name], SAMPLES[key].make())
    assert checked.asked[name] <= {"seconds", "progress"}, "nothing that changes what is found"
    assert str(verdict_of(report)) in patients.words()
    np.testing.assert_array_equal(patients.cells("measured"), report.mask.reaches)
    np.testing.assert_array_equal(patients.cells("open"), report.mask.declared)
    for finding in report.broken:
        assert finding.name in patients.words()
    assert ("leak: declared blocked, effect measured" in patients.words()) == bool(report.mask.leaks.any())
    assert "&lt;" not in "".join(patients.html()), "no markup is shown as text"
    assert patients.app.query_params.get("patient", "future") == key
    if not report.broken and SAMPLES[key].law:
        assert f"`python -m unmask check sample:{key} --thorough`" in patients.words()
    if key == "unused":
        assert "blocks.2.query_norm.weight and 1 more" in patients.words()


@pytest.mark.usefixtures("checked_here")
def test_a_model_saved_without_its_head_says_that_hidden_states_are_compared(tmp_path: Path) -> None:
    AutoModel.from_pretrained(save("llama", tmp_path / "whole")).save_pretrained(tmp_path / "llama")
    save_tokenizer(tmp_path / "llama")
    page = MaskCheckPage(model=str(tmp_path / "llama"), text="the cat sat on a mat")
    assert "llama (LlamaModel)" in page.words()
    assert "its last hidden states are compared, not logits" in page.words()


@pytest.mark.usefixtures("checked_here")
def test_another_model_in_bfloat16(folders: dict[str, str]) -> None:
    folder = folders["mistral"]
    page = MaskCheckPage(model=folder, text="the cat sat on a mat and then it saw the cat")
    page.set(number_type="bfloat16")
    assert "mistral (MistralForCausalLM) · decoder · bfloat16" in page.words()
    assert "window 3 (a reach of 6 over 3 layers)" in page.words()
    assert OBEYS in page.words()


@pytest.mark.usefixtures("checked_here")
def test_an_encoder_decoder(folders: dict[str, str]) -> None:
    page = MaskCheckPage(model=folders["t5"], text="the cat sat on a mat")
    assert "encoder-decoder" in page.words()
    assert OBEYS in page.words()


def layers_of(figure: go.Figure) -> dict[str, list]:
    return {trace["name"]: np.asarray(trace["z"]).tolist() for trace in figure.to_dict()["data"]}


@pytest.mark.usefixtures("checked_here")
@pytest.mark.parametrize("name", ["mistral", "t5"])
def test_what_is_declared_is_there_first(name: str, folders: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[go.Figure, str]] = []
    show = head.show
    monkeypatch.setattr(
        head, "show", lambda figure, alt, **how: shown.append((figure, alt)) or show(figure, alt, **how)
    )
    page = MaskCheckPage(model=folders[name], text="the cat sat on a mat and saw the cat again")
    (early, sentence), (late, _) = shown
    before, after = layers_of(early), layers_of(late)
    assert set(before) == {"open", "closed"} & set(after)
    for layer in before:
        np.testing.assert_array_equal(before[layer], after[layer])
    assert "nothing is measured yet" in sentence
    assert len(page.figures()) == 1


@pytest.mark.usefixtures("checked_here")
def test_what_cannot_be_checked_is_a_sentence() -> None:
    page = MaskCheckPage(model="dates", text="the 3rd of March 2021")
    assert "a check runs those of transformers" in page.app.error[0].value
    assert not page.figures()


def test_a_model_too_large_for_a_page_is_sent_to_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mask_check, "MAX_MEGABYTES", 1)
    page = MaskCheckPage(text="a text that no other test has checked")
    assert "python -m unmask check story" in page.app.error[0].value


@pytest.mark.usefixtures("checked_here")
@pytest.mark.parametrize("text", ["a", "word " * 90])
def test_a_long_text_is_said_to_be_cut(text: str, tiny_folder: Path) -> None:
    page = MaskCheckPage(model=str(tiny_folder), text=text)
    assert not page.app.error
    assert ("first 48 tokens" in page.words()) == (len(text) > 200)


def test_one_that_was_stopped_is_not_begun_again_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def counted(module, **more):
        made.append(more["name"])
        return check(module, **more)

    monkeypatch.setattr("mask_check.check.check", counted)
    results.result_cache().forget(lambda _: True)
    page = MaskCheckPage(what="patient", patient="pads")
    assert made == ["Attends to padding"]
    results.result_cache().forget(lambda _: True)
    page.app.session_state["stopped_work"] = repr(("obey", "pads", "float32"))  # as a click on the button leaves it
    page.run()
    assert made == ["Attends to padding"]
    assert not page.figures()
    page.set(patient="wide")
    assert made == ["Attends to padding", "Window one too wide"]
    page.set(patient="pads")
    (again,) = [button for button in page.app.button if button.label.startswith("Stopped")]
    again.click()
    page.run()
    assert made == ["Attends to padding", "Window one too wide", "Attends to padding"]
    assert page.figures()


def test_who_waits_for_another_reader_s_check_may_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """A click ends a script when it writes to the page; this one wrote nothing before the other user's check ended."""

    class Left(BaseException):
        """The exception with which Streamlit ends a script."""

    class Bar:
        def progress(self, share: float, words: str) -> None:
            if words == mask_check.WAITING:
                raise Left

    def waiting(key: object, make: object, raise_if_cancelled: Callable[[], object] = lambda: None) -> None:
        raise_if_cancelled()

    monkeypatch.setattr(results, "result_cache", lambda: SimpleNamespace(find=lambda key: None, get=waiting))
    monkeypatch.setattr(mask_check, "stoppable", lambda *_: nullcontext(Bar()))
    with pytest.raises(Left):
        mask_check.check_sample(SAMPLES["pads"], "float32")


def test_a_change_of_language_measures_nothing_again(checked: Checked) -> None:
    before = MaskCheckPage(what="patient", patient="diagonal")
    made = list(checked.reports)
    after = MaskCheckPage(what="patient", patient="diagonal", lang="zh")
    assert list(checked.reports) == made
    assert not [found for shown in texts(after.app) for found in english(shown)]
    assert before.figures() != after.figures()
