"""What a check found: one Finding for each law, and a CheckReport that holds them all, as text for a terminal, as JSON
and as JUnit's XML for continuous integration.

T positions. A pair (i, j) is an output position i and the position j whose token was changed.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal
from xml.etree import ElementTree

import numpy as np

from i18n import N_, msg, msg_all, msg_list, msg_together

Verdict = Literal["obeys", "broken", "cannot tell", "does not apply"]
OBEYS: Verdict = "obeys"
BROKEN: Verdict = "broken"
CANNOT_TELL: Verdict = "cannot tell"  # not shown
DOES_NOT_APPLY: Verdict = "does not apply"  # not shown
NOISE_FACTOR = 2.0  # times the largest noise seen: two runs are compared, each with its own noise
DECISIVE = "reach"  # a check in which this law cannot tell has found nothing out
LAWS = {  # their titles by their keys; check.py has what judges each
    "reach": N_("Influence between tokens"),
    "gradients": N_("Gradients between tokens"),
    "batch": N_("Batch independence"),
    "positions": N_("Position ids"),
    "padding-right": N_("Padding on the right"),
    "padding-left": N_("Padding on the left"),
    "pad-content": N_("Content of the padding"),
    "packing": N_("Packed documents"),
    "cache": N_("Key-value cache"),
    "kernels": N_("Attention kernels"),
    "cross": N_("Source padding"),
    "encoder": N_("Source encoder"),
    "cross-reach": N_("Which source tokens are read"),
    "training": N_("Training mode"),
    "reuse": N_("Reused caches"),
    "last": N_("Last logits (logits_to_keep)"),
    "tree": N_("Draft trees"),
    "unpositioned": N_("Padding without position ids"),
    "images": N_("Image blocks"),
    "layers": N_("Each layer's mask"),
    "parameters": N_("Unused parameters"),
    "derivative": N_("Gradients are derivatives"),
    "checkpointing": N_("Gradient checkpointing"),
    "compile": N_("torch.compile"),
    "length": N_("Longer rows"),
}

VERDICT_LABELS = {BROKEN: "BROKEN", DOES_NOT_APPLY: "–", CANNOT_TELL: "cannot tell"}  # not shown
VERDICTS = {  # by exit code
    0: N_("It obeys its mask on the rows checked, of {lengths} tokens."),
    1: N_("It does not obey its mask on the rows checked, of {lengths} tokens."),
    2: N_("The rows checked, of {lengths} tokens, do not show whether it obeys its mask."),
}
IN_ONE_PASS = N_("In one forward pass in eval mode it obeys its mask on the rows checked, of {lengths} tokens.")
OTHERS = frozenset(  # laws that a module may break although it obeys its mask in such a pass
    ("batch", "positions", "cache", "kernels", "training", "reuse", "last", "unpositioned", "parameters", "derivative",
     "checkpointing", "compile")
)  # fmt: skip
SCHEMA_VERSION = 1  # of docs/mask-check.schema.json: one more where a field is taken away or means something else
REPORT_FIELDS = ("name", "obeys", "exit_code", "kind", "declared", "assumed", "length", "longer", "dtype", "kernel",
         "parameters", "seed")  # fmt: skip
FINDING_FIELDS = ("law", "name", "verdict", "amount", "tolerance", "silent", "pair", "words")  # of a finding
REACHED, CLOSED, LEAK, SILENT, UNMEASURED = "■", "·", "!", "□", " "
PICTURE_LEGEND = (
    f"{REACHED} reaches  {CLOSED} closed  {LEAK} leaks  "
    f"{SILENT} declared open, not seen to reach  blank: not tried"  # not shown
)
FIRST = ("reach", "gradients")
PREREQUISITES = {  # a law is not judged if one of these is broken, which it would find again
    "tree": (*FIRST, "packing", "cache"),
    "reuse": ("cache", "batch"),
    "unpositioned": ("batch", "padding-right", "padding-left"),
    **dict.fromkeys(("images", "layers", "compile", "cross-reach"), FIRST),
    **dict.fromkeys(("parameters", "derivative", "checkpointing"), (*FIRST, "batch")),  # of a row by itself
    **dict.fromkeys(("padding-right", "padding-left", "pad-content", "packing", "cache"), ("batch",)),
}


class CannotCheck(ValueError):
    """The module cannot be checked; the message says why."""


def format_amount(amount: float) -> str:
    return f"{amount:.3g}" if math.isfinite(amount) else "NaN"


@dataclass(frozen=True)
class Noise:
    """The largest change of an output, in its own units, that no mask is to blame for.

    repeated: of the same row twice, of other rows in its batch as far as rounding explains it, and at the least its
    number type's epsilon of the largest output. rounded: of one more rounding in every part.
    """

    repeated: float
    rounded: float

    @property
    def beside(self) -> float:
        """What counts as no change between two rows of one forward, or of two forwards of one shape."""
        return NOISE_FACTOR * self.repeated

    @property
    def across(self) -> float:
        """What counts as no change between forwards of other shapes, other kernels or other steps."""
        return NOISE_FACTOR * max(self.repeated, self.rounded)


@dataclass(frozen=True)
class Finding:
    """What was found of one law. words: in one sentence.

    amount: the largest violation, in the outputs' own units (a gradient's for the law of gradients), infinite where an
    output is no number; None where nothing was measured. tolerance: what rounding alone may come to. pair: the first
    offending pair, or None. silent: where pairs that are declared open break the law, how many have a gradient of
    exactly 0; there is no amount then. law: its key out of LAWS. seconds: how long it took. by_positions: broken, but
    only by positions that are counted over pads.
    """

    verdict: Verdict
    words: str
    amount: float | None = None
    tolerance: float | None = None
    pair: tuple[int, int] | None = None
    silent: int = 0
    law: str = ""
    seconds: float = 0.0
    by_positions: bool = False

    @property
    def name(self) -> str:
        return LAWS.get(self.law, "")

    @property
    def obeys(self) -> bool:
        return self.verdict == OBEYS

    def __str__(self) -> str:
        return f"{self.verdict}: {self.words}"

    __repr__ = __str__

    def because(self, cause: str) -> "Finding":
        """This finding with a sentence on its likely cause, if any."""
        return replace(self, words=msg_together([self.words, cause])) if cause else self

    @classmethod
    def at(
        cls, pair: tuple[int, int], words: str, amount: float | None = None, limit: float | None = None, **values: Any
    ) -> "Finding":
        """A law broken at a pair. words: marked by N_, with {row}, {column}, {size} (the amount unless given)."""
        named: dict[str, Any] = {"row": pair[0], "column": pair[1], "size": format_amount(amount or 0.0)} | values
        return cls(BROKEN, msg(words, **named), amount, limit, pair, named.get("silent", 0))


def skipped(why: str) -> Finding:
    """The finding of a law that does not apply to this module."""
    return Finding(DOES_NOT_APPLY, why)


def unknown(why: str, finding: Finding | None = None) -> Finding:
    """The finding of a law that could not be decided. finding: holds what was measured."""
    return replace(finding or Finding(CANNOT_TELL, why), verdict=CANNOT_TELL, words=why)


def worst(findings: Iterable[Finding]) -> Finding | None:
    """The first that is broken, or the first that cannot tell; None where there is neither."""
    first = {finding.verdict: finding for finding in reversed([*findings])}
    return first.get(BROKEN) or first.get(CANNOT_TELL)


@dataclass(frozen=True, eq=False)
class MeasuredMask:
    """What reaches what, [T,T]: rows are outputs i, columns are changed tokens j.

    moved: float, the largest change of output i when token j is changed; NaN in columns that were not measured.
    declared: bool, True where j may reach i after all layers. tolerance: what counts as no change.
    """

    moved: np.ndarray
    declared: np.ndarray
    tolerance: float

    @property
    def measured(self) -> np.ndarray:
        """bool [T]: the columns that were measured."""
        return np.asarray(~np.isnan(self.moved).all(axis=0))

    @property
    def reaches(self) -> np.ndarray:
        """bool [T,T]: where a change arrived."""
        return np.asarray(self.moved > self.tolerance)

    @property
    def leaks(self) -> np.ndarray:
        """bool [T,T]: where a change arrived though the mask declared blocks it."""
        return np.asarray(self.reaches & ~self.declared)

    @property
    def silent(self) -> np.ndarray:
        """bool [T,T]: where no change arrived though it was measured and declared open."""
        return np.asarray(self.declared & ~self.reaches & self.measured[None, :])


@dataclass(frozen=True, eq=False)
class CheckReport:
    """A check of one module.

    declared: its masks in words. assumed: whether they are causal because nothing declares any. length: T. longer: the
    lengths of the other rows that were tried. pieces: a label for each position. dtype, kernel, parameters: of the
    module. seed: of all that was drawn at random. noise: what moves its outputs though no mask is to blame. forwards:
    how often it was called. mask: what reaches what; None where that could not be measured. limits: what no law has
    tested, by title.
    """

    name: str
    kind: str
    declared: str
    length: int
    pieces: tuple[str, ...]
    dtype: str
    kernel: str
    parameters: int
    seed: int
    noise: Noise
    findings: tuple[Finding, ...]
    mask: MeasuredMask | None
    assumed: bool = False
    longer: tuple[int, ...] = ()
    limits: tuple[tuple[str, str], ...] = ()
    forwards: int = 0
    seconds: float = 0.0

    @property
    def broken(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.verdict == BROKEN)

    @property
    def not_checked(self) -> tuple[tuple[str, str], ...]:
        """What was not checked or could not be told, and why: the law's title and a sentence."""
        open_ = [(one.name, one.words) for one in self.findings if one.verdict in (CANNOT_TELL, DOES_NOT_APPLY)]
        return (*open_, *self.limits)

    @property
    def obeys(self) -> bool:
        """Whether no law is broken and what reaches what could be measured."""
        return self.exit_code == 0

    @property
    def exit_code(self) -> int:
        """0 obeys, 1 a law is broken, 2 it could not be told."""
        if self.broken:
            return 1
        return 0 if self.finding(DECISIVE).verdict == OBEYS else 2

    def finding(self, law: str) -> Finding:
        """The finding of a law by its key. Raises KeyError where it was not asked."""
        return {finding.law: finding for finding in self.findings}[law]


def as_text(report: CheckReport, *, picture: bool = False) -> str:
    """Lines for a terminal; with a picture of the measured mask where asked."""
    size = f"{report.parameters / 1e6:.3g} M parameters"
    source = "assumed" if report.assumed else "declared"  # not shown
    lines = [
        f"{report.name}: {report.kind}, {report.dtype}, kernel {report.kernel}, {size}",
        f"{source}: {report.declared}; {report.length} tokens, seed {report.seed}",  # not shown
        "",
    ]
    shown = [finding for finding in report.findings if finding.verdict not in (CANNOT_TELL, DOES_NOT_APPLY)]
    width = max([len(name) for name, _ in report.not_checked] + [len(finding.name) for finding in shown])
    for finding in shown:
        verdict = VERDICT_LABELS.get(finding.verdict, finding.verdict)
        numbers = f"{finding.silent} pairs without effect" if finding.silent else ""  # not shown
        if finding.amount is not None and finding.tolerance is not None:
            numbers = f"{amount_text(finding.amount)} of {amount_text(finding.tolerance)}"
        pair = "" if finding.pair is None else f" {finding.pair}"
        lines.append(f"{verdict:<11}  {finding.name:<{width}}  {numbers:<18}  {finding.words}{pair}")
    lines += ["", "Not checked, and why:"] if report.not_checked else []  # not shown
    unsure = {finding.words for finding in report.findings if finding.verdict == CANNOT_TELL}
    for name, why in report.not_checked:
        lines.append(f"{VERDICT_LABELS[CANNOT_TELL] if why in unsure else '–':<11}  {name:<{width}}  {why}")
    if picture and report.mask is not None:
        lines += ["", *rows_of(report.mask), PICTURE_LEGEND]
    effort = f"{report.forwards} forward passes, {report.seconds:.1f} s."  # not shown
    return "\n".join([*lines, "", f"{verdict_of(report)} {effort}"])


def verdict_of(report: CheckReport) -> str:
    """The verdict, on how many tokens, and how many of them were changed where a large module allowed fewer."""
    broken = {finding.law: msg(finding.name) for finding in report.broken}
    in_one_pass = all(finding.law in OTHERS or finding.by_positions for finding in report.broken)
    others = in_one_pass and msg_list([*broken.values()])
    verdict = VERDICTS[report.exit_code]
    if others:
        verdict = IN_ONE_PASS if report.finding(DECISIVE).verdict == OBEYS else VERDICTS[2]
    lengths = msg_all([str(one) for one in (report.length, *report.longer)])
    words = msg(verdict, lengths=lengths)
    if others:
        words = msg_together([words, msg("Broken: {names}.", names=others)])
    changed = report.length if report.mask is None else int(report.mask.measured.sum())
    if changed == report.length:
        return words
    fewer = msg("In the first of them {changed:,} tokens were changed, one at a time.", changed=changed)
    return msg_together([words, fewer])


def amount_text(amount: float) -> str:
    """An amount to two figures; "NaN" for one that is not finite."""
    return f"{amount:.2g}" if math.isfinite(amount) else "NaN"


def rows_of(mask: MeasuredMask) -> list[str]:
    """The measured mask as characters, a row for each output."""
    cells = np.where(mask.reaches, REACHED, CLOSED)
    cells = np.where(mask.silent, SILENT, cells)
    cells = np.where(mask.leaks, LEAK, cells)
    cells = np.where(mask.measured[None, :], cells, UNMEASURED)
    return ["".join(row) for row in cells]


def as_json(report: CheckReport) -> str:
    """The report as JSON, every number finite or null."""
    mask, about = report.mask, {name: getattr(report, name) for name in REPORT_FIELDS}
    plain = {"schema_version": SCHEMA_VERSION, **about} | {
        "noise": vars(report.noise),
        "forwards": report.forwards,
        "seconds": round(report.seconds, 3),
        "findings": [{name: _finite(getattr(one, name)) for name in FINDING_FIELDS} for one in report.findings],
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
    """The text without characters that XML cannot hold."""
    return "".join(one if one.isprintable() else " " for one in text)
