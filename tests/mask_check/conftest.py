"""A fixture that runs FlexAttention uncompiled, except in the samples' tests, which make reports as users do.

torch would compile it again for every shape, even where nothing is to be compiled: half a second each.
"""

from collections.abc import Iterator

import pytest
from torch.nn.attention import flex_attention


@pytest.fixture(scope="module", autouse=True)
def flex_as_it_is(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if not request.path.stem.endswith("samples"):
            patch.setattr(flex_attention, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
        yield
