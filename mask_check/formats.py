"""A report as text for a terminal, as JSON, and as JUnit's XML for continuous integration."""

import json
import math
from typing import Any
from xml.etree import ElementTree

import numpy as np

from i18n import N_, msg, msg_all, msg_together
from mask_check.findings import BROKEN, CANNOT_TELL, DOES_NOT_APPLY, CheckReport, MeasuredMask

WORDS = {BROKEN: "BROKEN", DOES_NOT_APPLY: "–", CANNOT_TELL: "cannot tell"}  # not shown
VERDICTS = {  # by exit code
    0: N_("It obeys its mask on the rows checked, of {lengths} tokens."),
    1: N_("It does not obey its mask on the rows checked, of {lengths} tokens."),
    2: N_("The rows checked, of {lengths} tokens, do not show whether it obeys its mask."),
}
SCHEMA_VERSION = 1  # of docs/mask-check.schema.json: one more where a field is taken away or means something else
ABOUT = ("name", "obeys", "exit_code", "kind", "declared", "length", "longer", "dtype", "kernel", "parameters", "seed")
FOUND = ("law", "name", "verdict", "amount", "tolerance", "silent", "pair", "words")  # of a finding
REACHED, CLOSED, LEAK, SILENT, UNMEASURED = "■", "·", "!", "□", " "
KEY = (
    f"{REACHED} reaches  {CLOSED} closed  {LEAK} leaks  "
    f"{SILENT} declared open, not seen to reach  blank: not tried"  # not shown
)


def as_text(report: CheckReport, *, picture: bool = False) -> str:
    """Lines for a terminal; with a picture of the measured mask where asked."""
    size = f"{report.parameters / 1e6:.3g} M parameters"
    lines = [
        f"{report.name}: {report.kind}, {report.dtype}, kernel {report.kernel}, {size}",
        f"declared: {report.declared}; {report.length} tokens, seed {report.seed}",  # not shown
        "",
    ]
    shown = [finding for finding in report.findings if finding.verdict not in (CANNOT_TELL, DOES_NOT_APPLY)]
    width = max([len(name) for name, _ in report.not_checked] + [len(finding.name) for finding in shown])
    for finding in shown:
        verdict = WORDS.get(finding.verdict, finding.verdict)
        numbers = f"{finding.silent} pairs without effect" if finding.silent else ""  # not shown
        if finding.amount is not None and finding.tolerance is not None:
            numbers = f"{amount_text(finding.amount)} of {amount_text(finding.tolerance)}"
        pair = "" if finding.pair is None else f" {finding.pair}"
        lines.append(f"{verdict:<11}  {finding.name:<{width}}  {numbers:<18}  {finding.words}{pair}")
    lines += ["", "Not checked, and why:"]  # not shown
    unsure = {finding.words for finding in report.findings if finding.verdict == CANNOT_TELL}
    for name, why in report.not_checked:
        lines.append(f"{WORDS[CANNOT_TELL] if why in unsure else '–':<11}  {name:<{width}}  {why}")
    if picture and report.mask is not None:
        lines += ["", *rows_of(report.mask), KEY]
    effort = f"{report.forwards} forward passes, {report.seconds:.1f} s."  # not shown
    return "\n".join([*lines, "", f"{verdict_of(report)} {effort}"])


def verdict_of(report: CheckReport) -> str:
    """The verdict, on how many tokens, and how many of them were changed where a large module allowed fewer."""
    words = msg(VERDICTS[report.exit_code], lengths=msg_all([str(one) for one in (report.length, *report.longer)]))
    changed = report.length if report.mask is None else int(report.mask.measured.sum())
    if changed == report.length:
        return words
    fewer = msg("In the first of them {changed:,} tokens were changed, one at a time.", changed=changed)
    return msg_together([words, fewer])


def amount_text(amount: float) -> str:
    """Two figures; what is no finite number is "NaN"."""
    return f"{amount:.2g}" if math.isfinite(amount) else "NaN"


def rows_of(mask: MeasuredMask) -> list[str]:
    """The measured mask as characters, a row for each output."""
    cells = np.where(mask.reaches, REACHED, CLOSED)
    cells = np.where(mask.silent, SILENT, cells)
    cells = np.where(mask.leaks, LEAK, cells)
    cells = np.where(mask.measured[None, :], cells, UNMEASURED)
    return ["".join(row) for row in cells]


def as_json(report: CheckReport) -> str:
    """Every number finite or null."""
    mask, about = report.mask, {name: getattr(report, name) for name in ABOUT}
    plain = {"schema_version": SCHEMA_VERSION, **about} | {
        "noise": vars(report.noise),
        "forwards": report.forwards,
        "seconds": round(report.seconds, 3),
        "findings": [{name: _finite(getattr(one, name)) for name in FOUND} for one in report.findings],
        "not_checked": [{"name": name, "why": why} for name, why in report.not_checked],
        "leaks": [] if mask is None else np.argwhere(mask.leaks).tolist(),
        "not_seen": [] if mask is None else np.argwhere(mask.silent).tolist(),
    }
    return json.dumps(plain, indent=2, allow_nan=False, ensure_ascii=False)


def as_junit(report: CheckReport) -> str:
    """A test suite with a test for each law: broken fails, "cannot tell" and "does not apply" are skipped."""
    name = _printable(report.name)
    skipped = sum(finding.verdict in (CANNOT_TELL, DOES_NOT_APPLY) for finding in report.findings)
    counts = {"tests": len(report.findings), "failures": len(report.broken), "skipped": skipped, "errors": 0}
    about = {"name": f"unmask check {name}", **{what: str(count) for what, count in counts.items()}}  # not shown
    suite = ElementTree.Element("testsuite", about, time=f"{report.seconds:.3f}")
    for finding in report.findings:
        where = {"classname": name, "name": finding.law, "time": f"{finding.seconds:.3f}"}
        case = ElementTree.SubElement(suite, "testcase", where)
        words = _printable(finding.words)
        if finding.verdict == BROKEN:
            ElementTree.SubElement(case, "failure", message=words, type=finding.law)
        elif finding.verdict in (CANNOT_TELL, DOES_NOT_APPLY):
            ElementTree.SubElement(case, "skipped", message=f"{finding.verdict}: {words}")
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _finite(value: Any) -> Any:
    """The value; None for a number that JSON has no way to write."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _printable(text: str) -> str:
    """Without the characters that XML has no way to write."""
    return "".join(one if one.isprintable() else " " for one in text)
