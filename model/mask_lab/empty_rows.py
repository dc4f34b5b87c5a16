"""What a query without an allowed key gets from each attention kernel of the installed torch, measured.

Its softmax is 0 / 0 where blocked scores are −∞, uniform where they are a dtype's minimum, and 0 where a kernel defines
it so.
"""

from collections.abc import Callable
from contextlib import suppress

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from i18n import N_

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
QUERIES, KEYS, WIDTH = 3, 5, 8
EMPTY = 1  # the query that sees nothing

OUTCOMES = ("NaN", "0", N_("uniform"), N_("other"))  # uniform: the mean of all values
Kernel = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]  # (q, k, v, allowed) -> output [1,1,Q,D]


def _sdpa(backend: SDPBackend, added: bool) -> Kernel:
    def kernel(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
        mask = torch.zeros(allowed.shape, dtype=q.dtype).masked_fill(~allowed, -torch.inf) if added else allowed
        with sdpa_kernel(backend):
            output: Tensor = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return output

    return kernel


def _eager(fill: Callable[[torch.dtype], float]) -> Kernel:
    def kernel(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
        scores = (q @ k.transpose(-1, -2) / WIDTH**0.5).masked_fill(~allowed, fill(q.dtype))
        output: Tensor = scores.softmax(-1) @ v
        return output

    return kernel


KERNELS: dict[str, Kernel] = {
    N_("SDPA math, boolean mask"): _sdpa(SDPBackend.MATH, False),
    N_("SDPA math, −∞ added"): _sdpa(SDPBackend.MATH, True),
    N_("SDPA flash on CPU, boolean mask"): _sdpa(SDPBackend.FLASH_ATTENTION, False),
    N_("SDPA flash on CPU, −∞ added"): _sdpa(SDPBackend.FLASH_ATTENTION, True),
    N_("eager softmax, −∞"): _eager(lambda dtype: -torch.inf),
    N_("eager softmax, dtype minimum"): _eager(lambda dtype: torch.finfo(dtype).min),
}


@torch.inference_mode()
def empty_rows() -> dict[str, dict[str, str]]:
    """By kernel and dtype, as OUTCOMES has them; "" where the kernel refuses the mask or the dtype."""
    generator = torch.Generator().manual_seed(11)
    q, k, v = (torch.randn(1, 1, count, WIDTH, generator=generator) for count in (QUERIES, KEYS, KEYS))
    allowed = torch.ones(1, 1, QUERIES, KEYS, dtype=torch.bool)
    allowed[..., EMPTY, :] = False
    found: dict[str, dict[str, str]] = {}
    for name, kernel in KERNELS.items():
        found[name] = dict.fromkeys(DTYPES, "")
        for dtype_name, dtype in DTYPES.items():
            with suppress(RuntimeError):  # no such kernel for this mask or dtype
                output = kernel(q.to(dtype), k.to(dtype), v.to(dtype), allowed)
                found[name][dtype_name] = _outcome(output[0, 0, EMPTY].float(), v.to(dtype)[0, 0].float())
    return found


def _outcome(output: Tensor, values: Tensor) -> str:
    if output.isnan().any():
        return "NaN"
    if not output.any():
        return "0"
    return "uniform" if torch.allclose(output, values.mean(0), atol=0.01) else "other"
