"""The alarms as Markdown for a person and as an Atom feed (RFC 4287) for a reader. Pure.

Trap: a release note with an angle bracket breaks the feed, and every reader of it. Rule: XML is written by a library, Markdown escapes what
it would interpret, and both are made from the same list.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from runners.alarms.news import Alarm

ATOM = "http://www.w3.org/2005/Atom"
MOST_ENTRIES = 100
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>()#+!|~])")
_NOT_XML = re.compile("[^\\t\\n\\r\\u0020-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")
_HEADINGS = {
    "nightly_failed": "The night itself failed",
    "broke": "Broke",
    "slower": "Slower",
    "above_roofline": "Faster than the memory allows",
    "fixed": "Fixed",
}


@dataclass(frozen=True)
class Told:
    """An alarm and when it was told (UTC, ISO 8601)."""

    alarm: Alarm
    at: str


def markdown(title: str, alarms: Sequence[Alarm], facts: Sequence[str]) -> str:
    """A summary of one night: `facts` are sentences about it, alarms follow by kind."""
    lines = [f"# {_escaped(title)}", "", *(f"- {_escaped(fact)}" for fact in facts)]
    if not alarms:
        lines += ["", "Nothing confirmed broke, slowed down or was fixed."]
    for kind, heading in _HEADINGS.items():
        mine = [alarm for alarm in alarms if alarm.kind == kind]
        if mine:
            lines += ["", f"## {heading}", "", *(_item(alarm) for alarm in mine)]
    return "\n".join(lines) + "\n"


def atom(told: Sequence[Told], updated_at: str) -> bytes:
    """The newest alarms as an Atom document, newest first."""
    ET.register_namespace("", ATOM)
    feed = ET.Element(f"{{{ATOM}}}feed")
    _add(feed, "id", "urn:sparkproof:alarms")
    _add(feed, "title", "Sparkproof alarms")
    _add(feed, "updated", told[-1].at if told else updated_at)
    author = ET.SubElement(feed, f"{{{ATOM}}}author")
    _add(author, "name", "Sparkproof")
    for one in list(reversed(told))[:MOST_ENTRIES]:
        entry = ET.SubElement(feed, f"{{{ATOM}}}entry")
        _add(entry, "id", f"urn:sparkproof:alarm:{sha256(one.alarm.key.encode()).hexdigest()[:24]}")
        _add(entry, "title", one.alarm.title)
        _add(entry, "updated", one.at)
        ET.SubElement(entry, f"{{{ATOM}}}category", term=one.alarm.kind)
        _add(entry, "summary", _sentence(one.alarm))
    return bytes(ET.tostring(feed, encoding="utf-8", xml_declaration=True))


def _add(parent: ET.Element, name: str, text: str) -> None:
    ET.SubElement(parent, f"{{{ATOM}}}{name}").text = _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def _sentence(alarm: Alarm) -> str:
    where = f" (boot {alarm.run_id} on {alarm.node})" if alarm.run_id else ""
    return f"{alarm.reason}{where}"


def _item(alarm: Alarm) -> str:
    return f"- **{_escaped(alarm.title)}** — {_escaped(_sentence(alarm))}"


def _escaped(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", text)
