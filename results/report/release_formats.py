"""The report on a release as text, Markdown and JUnit XML.

Trap: a reason holds what a server said, and a CI page renders it. Rule: Markdown shows it in fences (fences.py); XML 1.0 cannot hold
control characters at all, so they are taken out, and the library escapes the rest.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree

from results.redact import plain
from results.report.fences import cell, code, fenced, table
from results.report.release_report import CellLine, ReleaseReport
from results.verdict.words import Verdict

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_REASON = 1_000


def as_text(reports: Sequence[ReleaseReport]) -> str:
    """For a terminal or a mail: one line a cell, and the reasons of those with news."""
    lines: list[str] = []
    for report in reports:
        lines.append(f"{plain(report.engine, 60)} {plain(report.release, 60)}: {_counted(report)}")
        for line in report.cells:
            head = f"  {_verdict(line):<13} {plain(line.state, 20):<12} {plain(_name(line), 100)}"
            lines.append(head.rstrip() + (f"  {_speed(line)}" if line.decode_tok_s is not None else ""))
            lines += [f"      {plain(reason, _REASON)}" for reason in _reasons(line)]
        lines += [f"  not ordered among releases: {', '.join(plain(v, 60) for v in report.left_out)}"] if report.left_out else []
        lines.append("")
    return "\n".join(lines)


def as_markdown(reports: Sequence[ReleaseReport]) -> str:
    """For an issue or a page: a table, and the reasons of those with news in fences."""
    parts: list[str] = []
    for report in reports:
        rows = [
            (
                f"**{_verdict(line)}**" if line.alarm or line.failed else _verdict(line),
                cell(line.state),
                cell(line.recipe),
                cell(line.backend),
                cell(line.node),
                _speed(line) or "–",
                f"{line.ttft_s * 1000:.0f} ms" if line.ttft_s is not None else "–",
                str(line.boots),
            )
            for line in report.cells
        ]
        parts.append(f"## {code(f'{report.engine} {report.release}')}\n\n{_counted(report)}")
        parts.append(table(("verdict", "state", "model", "backend", "node", "decode", "TTFT", "boots"), rows))
        for line in report.cells:
            if reasons := _reasons(line):
                parts.append(f"{code(_name(line))}:\n\n" + fenced("\n".join(reasons), 4 * _REASON))
        if report.left_out:
            parts.append("Not ordered among releases: " + ", ".join(code(version) for version in report.left_out))
    return "\n\n".join(parts) + "\n"


def as_junit(reports: Sequence[ReleaseReport]) -> str:
    """For CI: one suite a release, one case a cell. A failed or confirmed slower cell is a failure, one without evidence skipped."""
    root = ElementTree.Element("testsuites", name="sparkproof")
    for report in reports:
        suite = ElementTree.SubElement(root, "testsuite", name=_xml(f"{report.engine} {report.release}"))
        failures = skipped = 0
        for line in report.cells:
            name = f"{line.backend} on {line.node}" + ("" if line.distribution == "venv" else f" @{line.distribution}")
            case = ElementTree.SubElement(suite, "testcase", classname=_xml(f"{report.engine}.{line.recipe}"), name=_xml(name))
            told = "\n".join(_reasons(line)) or line.reason
            if line.failed or line.alarm:
                failures += 1
                failure = ElementTree.SubElement(case, "failure", type=_xml(_verdict(line)), message=_xml(told.splitlines()[0][:300]))
                failure.text = _xml(told)
            elif line.skipped:
                skipped += 1
                ElementTree.SubElement(case, "skipped", message=_xml(told[:300]))
            else:
                ElementTree.SubElement(case, "system-out").text = _xml("\n".join(part for part in (_speed(line), told) if part))
        counts = {"tests": len(report.cells), "failures": failures, "errors": 0, "skipped": skipped}
        for key, number in counts.items():
            suite.set(key, str(number))
    ElementTree.indent(root)
    written: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return written.decode() + "\n"


def _xml(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", plain(text, 8_000))


def _verdict(line: CellLine) -> str:
    return line.verdict if line.verdict in set(Verdict) else "no evidence"


def _name(line: CellLine) -> str:
    origin = "" if line.distribution == "venv" else f" @{line.distribution}"
    return f"{line.recipe} · {line.backend}{origin} · {line.node}"


def _speed(line: CellLine) -> str:
    """`45.2 tok/s (44.8–46.0), +3.1 % against 0.31.0`; a canary's speed is marked."""
    if line.decode_tok_s is None:
        return ""
    low, high = line.decode_tok_s_low, line.decode_tok_s_high
    spread = f" ({low:.1f}–{high:.1f})" if low is not None and high is not None and high > low else ""
    change = f", {line.decode_change:+.1%} against the last good release" if line.decode_change is not None else ""
    return f"{line.decode_tok_s:.1f} tok/s{' launch-bound' if line.launch_bound else ''}{spread}{change}"


def _reasons(line: CellLine) -> list[str]:
    """What is worth saying of a cell: why it does not pass, what else differed, and each number with news."""
    told = [line.reason] if line.failed or line.skipped or line.verdict not in (Verdict.UNCHANGED, Verdict.NEW) else []
    if line.differs:
        told.append("not the engine alone differs: " + ", ".join(line.differs))
    open_ones = [number for number in line.numbers if number.verdict == Verdict.INCONCLUSIVE and not number.moved]
    told += [f"{number.verdict}: {number.reason}" for number in line.numbers if number not in open_ones]
    return [*told, f"{len(open_ones)} numbers cannot be judged yet: {open_ones[0].reason}"] if open_ones else told


def _counted(report: ReleaseReport) -> str:
    failing = sum(line.failed for line in report.cells)
    passing = sum(line.state == "pass" for line in report.cells)
    alarms = sum(line.alarm for line in report.cells)
    none = len(report.cells) - failing - passing
    cells, alarmed = (f"{n} {word}{'' if n == 1 else 's'}" for n, word in ((len(report.cells), "cell"), (alarms, "alarm")))
    return f"{cells}: {passing} pass, {failing} fail, {none} without evidence or unsupported; {alarmed}"
