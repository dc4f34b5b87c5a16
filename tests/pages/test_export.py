"""The Export page without a browser: it offers what Explore shows, and an export opens again."""

import html
import io
import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import numpy as np
import pytest
import streamlit as st
from pypdf import PdfReader

from i18n import say
from model import catalog
from model.heads.view import HeadView
from model.masks import MaskSpec
from tests.pages.explore import Explore, array
from ui import results
from ui.export import export_files, pictures, printed
from ui.widgets import plain
from viz.export import data, fonts
from viz.export.paper import Paper
from viz.heads.attribution import largest_pairs
from viz.heads.cells import weight_text
from viz.html import signed
from viz.sentence import LAYER_ONLY

TEXT = "Once upon a time, the cat sat on a mat"


class Export(Explore):
    SCRIPT = "pages/export.py"

    def __init__(self, **query: str) -> None:
        super().__init__(**{"text": TEXT} | query)


def downloads(monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[[], Any]]:
    """Return the data of the page's download buttons by label, filled as the page runs."""
    found: dict[str, Callable[[], Any]] = {}
    monkeypatch.setattr("streamlit.download_button", lambda label, data, *_, **__: found.update({label: data}))
    return found


def test_the_numbers_are_those_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = downloads(monkeypatch)
    Export(causal="false", layer="2", head="3").set(section="Numbers")
    model = catalog.load("story")
    trace = model.run(model.encode([TEXT], "left"), MaskSpec(causal=False))
    for label in ("NPZ", "safetensors", "All heads, NPZ"):
        export = data.read(taken[label]())
        np.testing.assert_allclose(export.chosen.weights, trace.weights(2, 3).numpy(), atol=1e-6)
        assert export.about.masks["causal"] is False
        assert export.about.text_sha256 == data.hash_of(TEXT)
        ids = tuple(trace.batch.ids[0].tolist())
        assert (export.about.query_ids, export.about.key_ids) == (ids, ids)
    assert len(export.heads) == 36
    np.testing.assert_allclose(export.heads[5, 4].weights, trace.weights(5, 4).numpy(), atol=1e-6)
    assert taken["CSV"]().count("\n") == 1 + export.chosen.weights.size


@pytest.mark.parametrize("scope", ["model", "layer"])
def test_the_metadata_say_how_to_compute_every_layer_again(monkeypatch: pytest.MonkeyPatch, scope: str) -> None:
    taken = downloads(monkeypatch)
    Export(causal="false", scope=scope, layer="3", head="2").set(section="Numbers")
    export, about = data.read(taken["All heads, NPZ"]()), json.loads(taken["JSON"]())
    assert about["scope"] == export.about.scope == scope
    model, masks = catalog.load("story"), MaskSpec.from_json(json.dumps(about["masks"]))
    batch = model.encode([TEXT], "left")
    trace = model.run(batch) if scope == "layer" else model.run(batch, masks)
    for (layer, head), view in export.heads.items():
        np.testing.assert_allclose(view.weights, trace.weights(layer, head, masks=masks).numpy(), atol=1e-6)


def test_an_export_of_one_layer_says_so_when_it_is_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = downloads(monkeypatch)
    for given, stated in (({"causal": "false"}, True), ({}, False), ({"causal": "false", "scope": "model"}, False)):
        Export(**{"scope": "layer", "layer": "3"} | given).set(section="Numbers")
        page = Export(layer="0").set(section="Open an export")
        page.app.file_uploader(key="take_export").upload("x.npz", taken["NPZ"]())
        page.run()
        assert (say(LAYER_ONLY, layer="L3") in [plain(one.value) for one in page.app.caption]) == stated


def test_a_report_of_one_layer_says_that_no_prediction_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = downloads(monkeypatch)
    for scope in ("layer", "model"):
        Export(causal="false", scope=scope, layer="3").set(section="Report")
        only, report = scope == "layer", html.unescape(taken["Report"]())
        assert (say(LAYER_ONLY, layer="L3") in report) == only
        assert ("off: causal, in L3 only, whose weights are recomputed" in report) == only
        assert len(re.findall('class="losses"', report)) == (1 if only else 2)
        assert report.partition("<h2>The next token</h2>")[2].partition("</table>")[0].count("standard") == (not only)


def test_every_file_has_a_name_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    monkeypatch.setattr("streamlit.download_button", lambda label, data, name, *_, **__: names.append(name))
    monkeypatch.setattr(printed.PrintedPicture, "preview", lambda _: ("<svg xmlns='http://www.w3.org/2000/svg'/>", 9))
    page = Export(causal="false", layer="2", head="3")
    for kind in pictures.PICTURES:
        page.set(picture=kind)
    page.set(section="Numbers")
    assert {"unmask-story-L2H3-no-causal-head.svg", "unmask-story-L2H3-no-causal-all-heads.pdf"} <= set(names)
    assert {"unmask-story-L2H3-no-causal-head.npz", "unmask-story-L2H3-no-causal-all-heads.npz"} <= set(names)
    assert len({name for name in names if name.endswith(".svg")}) == len(pictures.PICTURES)
    Export(causal="false", layer="2", head="3", scope="layer")
    assert "unmask-story-L2H3-no-causal-layer-only-head.svg" in names


def captions(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, printed.PrintedPicture]]:
    """Return (caption, picture) of the page's pictures in display order, filled as the page runs."""
    pictures: list[tuple[str, printed.PrintedPicture]] = []
    blank = "<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>", 9
    monkeypatch.setattr(printed.PrintedPicture, "preview", lambda one: pictures.append((one.caption(), one)) or blank)
    return pictures


def test_the_caption_says_which_masks_hold_and_which_are_lifted(monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = captions(monkeypatch)
    Export(causal="false", palette="magma")
    Export()
    Export(causal="false", scope="layer", layer="3", picture="every")
    (lifted, one), (plain, other), (only, _) = pictures
    assert "Masks: padding; off: causal. Rows are queries 0–" in lifted
    assert one.of[1] is not None
    assert one.of[2].palette == "magma"
    assert "Masks: causal, padding. " in plain
    assert other.of[1] is None
    words = "off: causal, in L3 only, whose weights are recomputed from the standard run's queries and keys."
    assert words in only


def test_the_caption_of_one_layer_says_so_of_a_mask_that_is_added(
    monkeypatch: pytest.MonkeyPatch, folders: dict[str, str]
) -> None:
    pictures = captions(monkeypatch)
    for scope in ("layer", "model"):
        Export(model=folders["bert"], text="the cat sat", causal="true", scope=scope, layer="1")
    (only, _), (every, _) = pictures
    assert "Masks: causal, padding, in L1 only, whose weights are recomputed" in only
    assert "Masks: causal, padding. " in every


@pytest.mark.parametrize("picture", ["head", "every", "tokens"])
@pytest.mark.parametrize("causal", [True, False])
def test_the_caption_says_hatched_where_something_is(
    monkeypatch: pytest.MonkeyPatch, picture: str, causal: bool
) -> None:
    pictures = captions(monkeypatch)
    Export(causal=str(causal).lower(), picture=picture, query="2", text="The cat sat on a mat")
    ((caption, one),) = pictures
    beside = picture == "head" and one.of[1] is not None  # the picture under the standard masks
    assert ("Hatched cells are blocked." in caption) == (causal or beside)


def test_an_encoder_decoder_s_attentions_and_targets_are_told_apart(
    folders: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures, taken, names = captions(monkeypatch), dict[str, Any](), set[str]()
    take = lambda label, data, name, *_, **__: (names.add(name), taken.update({label: data}))  # noqa: E731
    monkeypatch.setattr("streamlit.download_button", take)
    for attention, target in (("encoder", "a mat"), ("decoder", "a mat"), ("cross", "a mat"), ("cross", "one old cat")):
        page = Export(model=folders["t5"], text="the cat sat on a mat", target=target, attention=attention)
    assert [one.title() for _, one in pictures] == [
        f"t5 ({one}) · L1 H0" for one in ("encoder", "decoder", "cross", "cross")
    ]
    assert ["causal" in caption.partition("Masks: ")[2].partition(".")[0] for caption, _ in pictures] == [
        False,
        True,
        False,
        False,
    ]
    digits = [re.search(r"Target: SHA-256 (\w{12})\.", caption)[1] for caption, _ in pictures]
    assert digits == [data.hash_of(target)[:12] for target in ("a mat", "a mat", "a mat", "one old cat")]
    page.set(section="Numbers")
    assert data.read(taken["NPZ"]()).about.target_sha256 == data.hash_of("one old cat")
    assert {f"unmask-t5-{one}-L1H0-head.pdf" for one in ("encoder", "decoder", "cross")} < names
    page.set(section="Report")
    report = taken["Report"]()
    assert "the cat sat on a mat\n→ one old cat" in report
    (address,) = re.findall(r'href="([^"]*)">This view', report)
    linked = dict(parse_qsl(urlsplit(html.unescape(address)).query))
    assert linked.items() >= {"model": folders["t5"], "text": "the cat sat on a mat", "target": "one old cat"}.items()


@pytest.mark.parametrize(("scope", "masks"), [("model", "padding; off: causal"), ("layer", "padding")])
def test_a_mask_lifted_in_the_decoder_that_cross_attention_reads_is_named(
    folders: dict[str, str], scope: str, masks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures, texts = captions(monkeypatch), {"text": "the cat sat on a mat", "target": "a mat"}
    for attention in ("cross", "encoder"):
        Export(model=folders["t5"], attention=attention, causal="false", scope=scope, **texts)
    assert [caption.partition("Masks: ")[2].partition(".")[0] for caption, _ in pictures] == [masks, "padding"]


def test_two_texts_too_long_for_a_picture_are_to_be_shortened_for_no_part_can_be_chosen(
    folders: dict[str, str],
) -> None:
    page = Export(model=folders["t5"], text="the cat " * 150, target="the cat sat", attention="cross")
    assert not page.app.get("slider")
    assert any(one.endswith("Shorten the texts on the left.") for one in page.boxes("info"))


def test_the_report_says_what_of_a_source_and_a_target_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token of the dates model is a character: 96 fit of a source, and 95 of a target, after its start token."""
    taken = downloads(monkeypatch)
    for sources, targets, cut in ((1, 1, []), (1, 30, ["235"]), (20, 30, ["124", "235"]), (20, 1, ["124"])):
        texts = {"text": "7 Aug 1999 " * sources, "target": "1999-08-07 " * targets}
        page = Export(model="dates", attention="cross", **texts).set(section="Report")
        report = taken["Report"]()
        assert re.findall(r"the last (\d+) characters of the text are cut", report) == cut
        assert f"{texts['text'][:96]}\n→ {texts['target'][:95]}<" in report
        page.set(section="Numbers")
        about = data.read(taken["NPZ"]()).about
        assert (about.text_sha256, about.target_sha256) == tuple(map(data.hash_of, texts.values()))


def test_a_character_that_no_font_here_has_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printed, "drawable", lambda text: text.replace("c", "⟨U+0063⟩"))
    assert "No font on this server has c: PNG and PDF" in " ".join(one.value for one in Export().app.caption)


def test_every_picture_is_of_what_explore_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = captions(monkeypatch)
    model = catalog.load("story")
    trace = model.run(model.encode([TEXT], "left"))
    for kind in ("every", "arcs", "tokens", "bars", "carried", "why"):
        Export(picture=kind, layer="2", head="3", heads="1,5", query="4", key="1")
    (all_said, every), (arcs_said, arcs), (tokens_said, tokens), (_, bars), (carried_said, carried), (cell, why) = shown
    assert "Attention of all 6 × 6 heads of story. " in all_said
    np.testing.assert_allclose(every.of[0], trace.overview().numpy(), atol=1e-6)
    assert "Attention of L2 H3, L2 H1, L2 H5 of story." in arcs_said
    np.testing.assert_allclose(arcs.of[0][2].weights, trace.weights(2, 5).numpy(), atol=1e-6)
    assert "The query is 4: “" in tokens_said
    for row in (tokens.of[0], bars.of[0].view):
        np.testing.assert_allclose(row.weights[0], trace.weights(2, 3)[4].numpy(), atol=1e-6)
    assert "The query is 4: “" in carried_said
    assert "adds: the norm of what the key adds" in carried_said
    np.testing.assert_allclose(carried.of[1].weights, trace.weights(2, 3)[4].numpy(), atol=1e-5)
    q, k = (one[0, 3, position] for one, position in ((trace.layers[2].q, 4), (trace.layers[2].k, 1)))
    score, weight = float(q @ k) * len(q) ** -0.5, float(trace.weights(2, 3)[4, 1])
    assert f" is {signed(score)}: q·k × {len(q) ** -0.5:.4g}. Its weight is {weight_text(weight)}." in cell
    assert "The score of 4: “" in cell
    rest = float(re.findall(r"The other terms \([\d,]+\) sum to ([+−][\d.]+)\.", cell)[0].replace("−", "-"))
    terms = [term for *_, term in largest_pairs(why.of[0])]
    assert sum(terms) + rest == pytest.approx(score, abs=1e-3)
    assert all(one.file("svg").startswith(b"<?xml") for _, one in shown)


def test_a_picture_is_made_as_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job waits for its turn, and a worker that takes too long over it is stopped."""
    taken = downloads(monkeypatch)
    Export()
    done: list[str] = []
    monkeypatch.setattr(results.scheduler(), "observers", [lambda job: done.append(job.job)])
    assert taken["PNG 4×"]().startswith(b"\x89PNG")
    assert done == ["viz.export.paper.file_of"]


def test_a_score_that_cannot_be_split_says_why(monkeypatch: pytest.MonkeyPatch, folders: dict[str, str]) -> None:
    pictures = captions(monkeypatch)
    Export(picture="why", model=folders["bert"])
    ((cell, why),) = pictures
    assert why.of[0].sources is None
    assert "The score is not split by source. " in cell
    assert "Each bar" not in cell


def test_an_export_opens_again_and_looks_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    explore = Explore(text=TEXT, layer="2", head="3")
    taken = downloads(monkeypatch)
    Export(layer="2", head="3").set(section="Numbers")
    page = Export(layer="0", head="0").set(section="Open an export")
    file = taken["NPZ"]()
    page.app.file_uploader(key="take_export").upload("x.npz", file)
    page.run()
    assert page.app.session_state["opened_export"] == ("x.npz", file), "unpacked, it may be a thousand times larger"
    size = "{0} × {0}".format(len(explore.weights()))  # of tokens, or of what tokens are merged into
    assert f"story · {size} cells · blocked by: causal" in page.boxes("markdown"), "it has no other mask"
    traces = page.figures()["opened_figure"]["data"]
    found = next(trace for trace in traces if trace["name"] == "weights")
    np.testing.assert_allclose(array(found["z"]), explore.weights(), atol=1e-6)
    assert (
        found["y"]
        == next(trace for trace in explore.figures()["head_figure"]["data"] if trace["name"] == "weights")["y"]
    )


def test_a_damaged_upload_is_a_sentence() -> None:
    page = Export().set(section="Open an export")
    page.app.file_uploader(key="take_export").upload("x<b>.npz", b"PK no more", "application/zip")
    page.run()
    (error,) = page.boxes("error")
    assert error.startswith("x<b>.npz was not opened: expected an NPZ that Unmask saved, got one that cannot be read")
    assert not page.figures()


def test_a_small_upload_is_not_unpacked_to_a_hundred_megabytes() -> None:
    zeros, labels = np.zeros((1024, 1024), np.float32), ["a"] * 1024
    about = data.About(model="m", layer=0, head=0, text_sha256=data.hash_of(""), masks={}, queries=labels, keys=labels)
    file = data.as_npz(
        data.Export(about, {(0, head): HeadView(zeros, zeros, {}, labels, labels) for head in range(15)})
    )
    assert len(file) < 200_000
    page = Export().set(section="Open an export")
    page.app.file_uploader(key="take_export").upload("x.npz", file)
    page.run()
    (error,) = page.boxes("error")
    assert "more than 20 MB unpacked" in error


def test_a_text_too_long_for_one_picture_or_file_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures.drawn, "MAX_SIDE", 5)
    assert any("label at most 5 tokens" in text for text in Export().boxes("info"))
    monkeypatch.setattr(data, "MAX_BYTES", 2000)
    assert any(
        "all heads of this text together" in caption.value for caption in Export().set(section="Numbers").app.caption
    )


def test_a_head_too_large_for_a_file_is_not_offered_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "MAX_BYTES", 500)
    taken = downloads(monkeypatch)
    page = Export().set(section="Numbers")
    assert "one head of this text" in " ".join(one.value for one in page.app.caption)
    assert set(taken) & {"NPZ", "safetensors", "CSV", "JSON"} == {"JSON"}


def test_what_this_server_does_not_open_again_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def captions_of_numbers() -> str:
        return " ".join(one.value for one in Export().set(section="Numbers").app.caption)

    assert "opened again" not in captions_of_numbers()
    monkeypatch.setattr(export_files, "max_opened_bytes", lambda: 1000)
    assert "can be opened again here; these numbers take up to" in captions_of_numbers()


def test_the_uploader_takes_what_the_server_does() -> None:
    page = Export().set(section="Open an export")
    assert page.app.file_uploader(key="take_export").proto.max_upload_size_mb == st.get_option("server.maxUploadSize")


def test_the_report_holds_the_chosen_head_the_masks_and_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = downloads(monkeypatch)
    Export(causal="false", layer="2", head="3").set(section="Report")
    html = taken["Report"]()
    assert TEXT in html
    assert "off: causal" in html
    assert "layer=2&amp;head=3" in html
    assert "text=Once" in html.partition("This view in a running app")[0].rpartition("href=")[2]  # as in the file
    assert len(html) < 8_000_000
    Export(layer="2", head="3").set(section="Report")
    assert "lifted" not in taken["Report"]()


def test_a_chinese_readers_files_are_chinese_as_far_as_there_are_fonts(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = downloads(monkeypatch)
    monkeypatch.setattr(fonts, "_in_ours", lambda character: ord(character) < 0x2E80)
    monkeypatch.setattr(fonts, "_covering", lambda character: None)
    page = Export(lang="zh", picture="tokens", query="4")
    assert any("这台服务器没有中文字体" in one.value for one in page.app.caption)
    assert "查询是 4" in taken["SVG"]().decode()  # made outside the page's run
    assert "The query is 4: “" in PdfReader(io.BytesIO(taken["PDF"]())).pages[0].extract_text()
    monkeypatch.setattr(fonts, "_covering", lambda character: "Some Han font")
    page = Export(lang="zh", picture="tokens", query="4")
    assert not any("字体" in one.value for one in page.app.caption)
    written: list[str] = []
    monkeypatch.setattr(printed, "Paper", lambda *of: written.append(of[1]) or Paper(*of))
    taken["PDF"]()
    assert "查询是 4" in written[0]


@pytest.mark.usefixtures("in_chinese")
def test_a_chinese_readers_report_is_chinese_and_its_data_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = downloads(monkeypatch)
    Export(lang="zh", causal="false").set(section=plain("数值"))
    assert taken["CSV"]().startswith("\ufeffquery,query token,key,key token,weight,scaled score,blocked by")
    Export(lang="zh", causal="false").set(section=plain("报告"))
    html = taken["报告"]()
    assert "每个头看哪里" in html
    assert "已去掉：因果" in html
