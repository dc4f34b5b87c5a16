"""Tests of docs/lift_the_mask.ipynb: executed in a kernel on the included model, exported and opened offline, and
rendered in JupyterLab; and of a live head beside its mask.
"""

import os
from pathlib import Path
from urllib.parse import urlsplit

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import Browser, expect

import unmask
from tests.browser.conftest import Watch
from tests.browser.jupyterlab import jupyterlab
from tests.browser.test_alone import CELL, colours

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs" / "lift_the_mask.ipynb"
TEXT = "The little cat saw the big dog, and the little cat saw the big dog"  # the notebook's text


@pytest.fixture(scope="module")
def executed() -> nbformat.NotebookNode:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"UNMASK_EXAMPLE_MODEL": "story", "HF_HUB_OFFLINE": "1", "PYTHONPATH": paths}
    client = NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": ROOT}})
    return client.execute(env=environment)


def test_what_is_kept_of_it_has_no_outputs() -> None:
    cells = [cell for cell in nbformat.read(NOTEBOOK, as_version=4).cells if cell.cell_type == "code"]
    assert len(cells) == 5
    assert not any(cell.outputs for cell in cells)


def test_it_says_which_model_it_ran(executed: nbformat.NotebookNode) -> None:
    outputs = [cell.outputs for cell in executed.cells if cell.cell_type == "code"]
    assert outputs[0][0].data["text/plain"] == "story: GPT-2, decoder, 6 layers, 6 heads, computed in float32 on CPU"
    lifted = unmask.load("story").run(TEXT, causal=False)
    assert outputs[2][0].data["text/plain"] == repr(lifted.leak())
    assert "[1. 1. 1." in outputs[4][0].text


def test_exported_and_opened_offline(executed: nbformat.NotebookNode, browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "lift_the_mask.html"
    exporter = HTMLExporter(
        template_name="basic"
    )  # other templates load MathJax and require.js from a CDN, whatever the notebook contains
    body, _ = exporter.from_notebook_node(executed)
    file.write_text(f'<!doctype html><meta charset="utf-8">{body}', encoding="utf-8")
    watch = Watch("")
    context = browser.new_context(offline=True, viewport={"width": 1200, "height": 900})
    page = context.new_page()
    watch.follow(page)
    page.goto(file.as_uri())
    frames = page.locator("iframe")
    expect(frames).to_have_count(4)
    whole = frames.nth(0).content_frame
    heatmap = whole.locator(".heatmap canvas")
    heatmap.scroll_into_view_if_needed()
    expect(whole.locator(".heatmap")).to_have_attribute("data-head", "L4 H0")
    assert colours(heatmap) > 50
    assert colours(whole.locator(".overview canvas")) > 50
    for number in range(4):
        frames.nth(number).scroll_into_view_if_needed()
        root = frames.nth(number).content_frame.locator("html")
        expect(root).to_have_js_property("scrollTop", 0)
        page.wait_for_timeout(300)  # the frame's own observer sets its height
        tall, room = root.evaluate("root => [root.scrollHeight, root.clientHeight]")
        assert tall <= room  # nothing in the frame needs scrolling
    frames.nth(0).scroll_into_view_if_needed()
    heatmap.hover(position={"x": 130, "y": 60})
    expect(whole.locator(".heatmap .cell")).to_have_text(CELL)
    assert "<table" in frames.nth(1).get_attribute("srcdoc")  # type: ignore[operator]
    changed = unmask.load("story").run(TEXT, causal=False).difference(unmask.load("story").run(TEXT))
    name = changed.view.names[changed.view.chosen[0][0]][changed.view.chosen[0][1]]
    expect(frames.nth(2).content_frame.locator(".heatmap")).to_have_attribute("data-head", name)
    context.close()
    assert not watch.elsewhere
    assert not watch.errors


def test_rendered_in_jupyterlab(executed: nbformat.NotebookNode, browser: Browser, tmp_path: Path) -> None:
    with jupyterlab(tmp_path, executed) as (server, notebook):
        watch = Watch(urlsplit(server).netloc)
        context = browser.new_context(viewport={"width": 1400, "height": 1000})
        page = context.new_page()
        watch.follow(page)
        page.goto(notebook)
        frames = page.locator(".jp-Notebook iframe[srcdoc]")
        expect(frames).to_have_count(4)
        for number, canvas in ((0, ".overview canvas"), (0, ".heatmap canvas"), (2, ".heatmap canvas")):
            frames.nth(number).scroll_into_view_if_needed()
            picture = frames.nth(number).content_frame.locator(canvas)
            expect(picture).to_be_visible()
            assert colours(picture) > 50
        frames.nth(3).scroll_into_view_if_needed()
        frames.nth(3).content_frame.get_by_text("·saw", exact=True).first.hover()
        expect(frames.nth(3).content_frame.locator(".said")).to_contain_text("·saw attends to ")
        frames.nth(1).scroll_into_view_if_needed()
        expect(frames.nth(1).content_frame.locator("table").first).to_be_visible()
        frames.nth(0).scroll_into_view_if_needed()
        heatmap = frames.nth(0).content_frame.locator(".heatmap")
        heatmap.locator("canvas").hover(position={"x": 130, "y": 60})
        expect(heatmap.locator(".cell")).to_have_text(CELL)
        context.close()
    assert not watch.elsewhere
    assert not watch.errors


def test_a_live_head_beside_its_mask(browser: Browser, tmp_path: Path) -> None:
    code = f"import unmask\nunmask.load('story').run('{TEXT}').live(4, 0)"
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    with jupyterlab(tmp_path, new_notebook(cells=[new_code_cell(code)], metadata=kernel)) as (server, address):
        watch = Watch(urlsplit(server).netloc)
        context = browser.new_context(viewport={"width": 1400, "height": 1000})
        page = context.new_page()
        watch.follow(page)
        page.goto(address)
        # JupyterLab drops what is run before the kernel has started.
        expect(page.get_by_role("button", name="Python 3 (ipykernel) | Idle")).to_be_visible(timeout=120_000)
        page.locator(".jp-CodeCell .cm-content").click()
        page.keyboard.press("Shift+Enter")
        mask, head = page.locator(".mask canvas"), page.locator(".heatmap canvas")
        expect(head).to_be_visible(timeout=120_000)  # long enough to import torch
        left, right = mask.bounding_box(), head.bounding_box()
        assert min(left["width"], right["width"]) > 300
        assert left["x"] + left["width"] <= right["x"]
        before = head.evaluate("canvas => canvas.toDataURL()")
        mask.focus()
        page.keyboard.press("c")  # blocks the first column
        drawn = "([canvas, before]) => canvas.toDataURL() !== before"
        page.wait_for_function(drawn, arg=[head.element_handle(), before])
        page.set_viewport_size({"width": 700, "height": 1000})  # too narrow for both beside JupyterLab's own bar
        expect(head).to_be_visible()
        assert mask.bounding_box()["y"] + mask.bounding_box()["height"] <= head.bounding_box()["y"]
        context.close()
    assert not watch.elsewhere
    assert not watch.errors
