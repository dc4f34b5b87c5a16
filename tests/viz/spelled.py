"""A reader of numbers as the pages write them."""

import re

DIGITS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def number(text: str) -> float:
    """Return the float that is written as "−1.5" or "1.1 × 10⁻⁵"."""
    found = re.fullmatch("(.*)\u202f×\u202f10(.*)", text)
    plain = f"{found[1]}e{found[2].translate(DIGITS)}" if found else text
    return float(plain.replace("−", "-"))
