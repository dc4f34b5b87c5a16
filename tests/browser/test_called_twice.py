"""Tests of components that Streamlit calls twice with one element, ending either of the two calls at once.

That happens if the page is redrawn while the component's module is fetched, which is often on a busy machine."""

import pytest
from playwright.sync_api import Browser

from tests.browser.explore import Explore
from tests.browser.lab import Lab

TWICE = """
  const calls = `
    export default async (given) => {
      const calls = [await draw(given), await draw(given)];
      calls[ENDED]?.();
      return calls[1 - ENDED];
    }`;
  const Original = Blob;
  window.twice = 0;
  window.Blob = class extends Original {
    constructor(parts, options) {
      const module = options?.type === "text/javascript" && parts[0].includes("export default");
      super(module ? [`const { default: draw } = await import("${address(parts)}");`, calls] : parts, options);
    }
  };
  function address(parts) {
    window.twice += 1;
    return URL.createObjectURL(new Original(parts, { type: "text/javascript" }));
  }
"""


@pytest.mark.parametrize(("kind", "ended"), [(Explore, 0), (Explore, 1), (Lab, 0), (Lab, 1)])
def test_what_is_drawn_stays_when_one_of_two_calls_is_ended(
    browser: Browser, server: str, kind: type[Explore], ended: int
) -> None:
    with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        page = context.new_page()
        page.add_init_script(TWICE.replace("ENDED", str(ended)))
        kind(page, f"{server}/{kind.PATH}")  # raises Error if a picture is missing
        assert page.evaluate("twice") > 1
        assert page.locator(".js-plotly-plot .main-svg, .view canvas").count()
