"""What an operator's limits cut off is said, with the number: a text's characters, a row's tokens, a text's lines."""

import pytest

from model import catalog
from serving.settings import Settings
from tests.pages.explore import Explore


def test_characters_and_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNMASK_CHARACTERS", "107")
    monkeypatch.setenv("UNMASK_ROWS", "5")
    page = Explore(text="a cat\n" * 23)  # 138 characters, of which 107 are 18 lines
    said = [caption.value for caption in page.app.caption]
    assert any("138 characters; this server reads at most the first 107" in words for words in said)
    assert any("Lines shown: the first 5 of 18. The page takes at most 5" in words for words in said)
    assert page["text"] == "a cat\n" * 23, "what was typed stays"


@pytest.mark.parametrize("tokens", [19, 4096])
def test_tokens(tokens: int) -> None:
    model = catalog.load("story", settings=Settings(tokens=tokens))
    assert model.context == min(tokens, 256)
    batch = model.encode(["a cat " * 300])
    assert batch.ids.shape[1] == model.context
    assert batch.cut[0]
