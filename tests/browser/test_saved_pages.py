"""Tests that no kind of page written to a file shows NaN, undefined or infinity, in an offline Chromium.

The page is read as the browser holds it, with attributes and inline styles, also after a token was pointed at; a report
is printed too.
"""

import io
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from playwright.sync_api import Browser, Page, expect
from pypdf import PdfReader

import unmask
from model import catalog
from model.masks import MaskSpec
from tests.model.huggingface import image_families
from tests.model.huggingface.image_families import picture
from ui import run_view
from ui.export.export_files import ExportSubject
from ui.export.export_files import report_of as exported
from unmask.checking import Report
from unmask.pictures import TRAITS, Picture
from viz.palette import NOW, STANDARD

TEXT = "Once upon a time there was a little cat. The cat saw a dog"
NO_NUMBER = re.compile("NaN|undefined|Infinity|∞")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Picture | Report | str]:
    """Return one page of every kind, and for kinds that differ by model one of every such model."""
    model = unmask.load("story")
    run, lifted = model.run(TEXT), model.run([TEXT, "one"], causal=False, padding=False, row=1)
    other, one, dates = model.run(TEXT, causal=False), model.run("a"), unmask.load("dates").run("3 March 2021")
    weights = [torch.rand(1, 2, 30, 30).softmax(-1) for _ in range(3)]
    given = unmask.attentions(weights, [f"t{index}" for index in range(30)])  # spread out: no weight above 0.1
    return {
        "heads": run.heads(), "head": run.head(4, 0), "tokens": run.tokens(4, 0), "arcs": run.arcs(4, [0, 1]),
        "mask": run.mask(4, 0), "leak": lifted.leak(), "next": run.next_token(), "difference": other.difference(run),
        "change": other.head(4, 0).difference(run.head(4, 0)), "report": unmask.report(lifted),
        "one": unmask.report(one),
        "given": given.heads(), "dates": unmask.report(dates), "encoder": dates.attention("encoder").heads(),
        "digit": unmask.digit(np.arange(64) % 8, 3).pixels(2, 1, 20), "check": run.check(), "export": in_the_app(),
        "image": with_image(tmp_path_factory.mktemp("llava")),
    }  # fmt: skip


def with_image(folder: Path) -> Picture:
    return unmask.load(str(image_families.save("llava", folder))).run("the cat sat", image=picture()).on_image(0, 0)


def in_the_app() -> str:
    """Return the report of the page Export."""
    model = catalog.load("story")
    batch = model.encode([TEXT])
    now, standard = run_view.run_pair(model, batch, MaskSpec(causal=False), 0, "self")
    return exported(ExportSubject(now, standard, 4, 0, TEXT), "")


@pytest.fixture
def tab(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(offline=True, viewport={"width": 1100, "height": 900})
    yield page
    page.close()


def read(page: Page) -> str:
    """Return the page's HTML without its scripts and style sheets."""
    return page.evaluate("""() => {
      const all = document.documentElement.cloneNode(true);
      for (const one of all.querySelectorAll("script, style")) one.remove();
      return all.outerHTML;
    }""")


def test_no_page_says_nan(pages: dict[str, Picture | Report | str], tab: Page, tmp_path: Path) -> None:
    views, errors = set(), []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    for name, shown in pages.items():
        file = tmp_path / f"{name}.html"
        file.write_text(
            shown if isinstance(shown, str) else getattr(shown, "page", shown._repr_html_)(), encoding="utf-8"
        )
        tab.goto(file.as_uri())
        for view in tab.locator(".heatmap, .tokens:not(.numbers), .arcs").all():
            expect(view).to_have_attribute("data-head", re.compile("L"))
        found = read(tab)
        if tab.locator(".tokens .token").count():
            tab.locator(".tokens .token").last.hover()
            found += read(tab)
            light = tab.locator(".tokens .token").evaluate_all(
                "tokens => tokens.map((token) => parseFloat(getComputedStyle(token).getPropertyValue('--light')))"
            )
            assert max(light) > 0.1, name
            views.add(name)
        assert not NO_NUMBER.findall(found), name
    assert {"heads", "tokens", "report", "given", "dates", "export"} <= views
    assert not errors


def test_there_is_a_page_of_every_kind(pages: dict[str, Picture | Report | str]) -> None:
    shown = [one for one in pages.values() if isinstance(one, Picture)]
    assert {Picture, *Picture.__subclasses__()} <= {type(one) for one in shown}
    assert set(TRAITS) <= {one.canvas().view for one in shown if one.canvas}


def test_a_report_printed_from_a_dark_browser_has_its_labels_and_its_bars(
    pages: dict[str, Picture | Report | str], tab: Page, tmp_path: Path
) -> None:
    """Chromium prints a page in its light colours, without backgrounds, but a canvas as it is."""
    tab.emulate_media(color_scheme="dark")
    tab.goto(pages["report"].save(tmp_path / "report.html").as_uri())
    expect(tab.locator(".heatmap").first).to_have_attribute("data-head", re.compile("L"))
    ground = tab.locator("body").evaluate("body => getComputedStyle(body).backgroundColor")
    dark = tuple(int(part) for part in re.findall(r"\d+", ground))
    assert max(dark) < 60
    printed = PdfReader(io.BytesIO(tab.pdf())).pages
    fills = {
        tuple(round(255 * float(part)) for part in found)
        for page in printed
        for found in re.findall(r"([\d.]+) ([\d.]+) ([\d.]+) rg", page.get_contents().get_data().decode("latin1"))
    }
    assert dark in fills, "below the light labels of a canvas"
    assert {tuple(bytes.fromhex(colour[1:])) for colour in (NOW, STANDARD)} <= fills, "of the tables' bars"
