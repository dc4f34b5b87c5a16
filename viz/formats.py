"""Numbers too small for decimals, in one spelling."""

import math

SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def power_of_ten(value: float, digits: int = 2) -> str:
    """So many digits and a power of ten: 0.00001073 -> "1.1 × 10⁻⁵"; with narrow spaces that do not break."""
    mantissa, power = f"{value:.{digits - 1}e}".split("e")
    return f"{mantissa}\u202f×\u202f10{str(int(power)).translate(SUPERSCRIPT)}"


def amount(difference: float) -> str:
    """8.0568 -> "8.1"; 0.00001073 -> "1.1 × 10⁻⁵"; 0 -> "0"; what is no number -> "∞"."""
    if math.isnan(difference) or math.isinf(difference):
        return "∞"
    if difference == 0:
        return "0"
    if difference >= 9.95:
        return f"{difference:,.0f}"
    if difference >= 0.00995:
        return f"{difference:.1f}" if difference >= 0.995 else f"{difference:.2g}"
    return power_of_ten(difference)
