"""Numbers with a sign, and those too small for decimals, in one spelling."""

import math

SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def fixed(value: float, digits: int) -> str:
    """So many digits after the point, with a true minus, and none before what rounds to 0: "−1.50", "0.00"."""
    text = f"{float(value):.{digits}f}"
    return text.replace("-", "−") if text.strip("-0.") else text.lstrip("-")


def signed(value: float, digits: int = 3) -> str:
    """The same with a plus before what is more than 0."""
    text = fixed(value, digits)
    return text if text.startswith("−") or not text.strip("0.") else f"+{text}"


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
