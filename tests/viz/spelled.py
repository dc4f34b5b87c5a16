"""Numbers as the pages spell them, read back."""

import re

DIGITS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def number(text: str) -> float:
    """ "−1.5" or "1.1 × 10⁻⁵" as a float."""
    found = re.fullmatch("(.*)\u202f×\u202f10(.*)", text)
    plain = f"{found[1]}e{found[2].translate(DIGITS)}" if found else text
    return float(plain.replace("−", "-"))
