"""Keep secrets and terminal escapes out of everything that is stored or shown.

Trap: an API key in a serve command, a token in an index URL, or an escape sequence in a model's answer ends up in a bug report. Rule: every
command, environment and log passes `redact` before it is stored, and `plain` before it is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

HIDDEN = "[redacted]"

_SECRET_NAME = re.compile(r"(?i)(?:^|[_-])(?:TOKEN|SECRET|PASSWORD|PASSWD|APIKEY|KEY|CREDENTIALS?|AUTH)$")
_SECRET_OPTION = re.compile(r"(?i)^--?(?:[a-z0-9-]*-)?(?:api-key|token|hf-token|password|secret|admin-api-key|key)$")
_PATTERNS = (
    re.compile(r"(?P<keep>[a-zA-Z][a-zA-Z0-9+.-]{1,20}://)[^\s/@'\"]{1,400}@"),
    re.compile(r"(?P<keep>(?i:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,4096}"),
    re.compile(
        r"(?P<keep>\b)(?:hf_[A-Za-z0-9]{16,200}|sk-[A-Za-z0-9_-]{16,200}|gh[pousr]_[A-Za-z0-9]{20,255}|nvapi-[A-Za-z0-9_-]{20,200}|AKIA[0-9A-Z]{16})"
    ),
    re.compile(
        r"(?P<keep>(?i:\b(?:[a-z0-9_-]{0,40}[_-])?(?:api[_-]?key|token|password|passwd|secret)['\"]?\s{0,3}[:=]\s{0,3}['\"]?))"
        r"(?!(?:None|null|False|True|\d{1,9}\b)['\",\s)}]?)[^\s'\",;)}]{6,4096}"
    ),
    re.compile(r"(?P<keep>(?i:--(?:[a-z0-9-]{1,40}-)?(?:api-key|token|password|secret)\s+))[^\s'\"]{3,4096}"),
    re.compile(r"(?P<keep>(?i:serial number: ))[A-Za-z0-9-]{4,64}"),
    re.compile(r"(?P<keep>\bGPU-)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
)
_ESCAPES = re.compile(
    r"\x1b\[[0-?]{0,64}[ -/]{0,16}[@-~]|\x1b\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)|\x1b[P^_X][^\x1b]{0,4096}\x1b\\|\x1b[@-Z\\-_]?|[\x80-\x9f]"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u202a-\u202e\u2066-\u2069]")


def redact(text: str) -> str:
    """`text` with URL credentials, bearer tokens, well-known key shapes, `name=secret` values, serial numbers and GPU UUIDs (the driver's
    kernel messages name both) replaced by `[redacted]`."""
    for pattern in _PATTERNS:
        text = pattern.sub(lambda m: m.group("keep") + HIDDEN + ("@" if m.group(0).endswith("@") else ""), text)
    return text


def redact_argv(argv: Iterable[str]) -> tuple[str, ...]:
    """The command with the value after a secret-looking option, and every secret-looking part, hidden."""
    out: list[str] = []
    hide_next = False
    for part in argv:
        out.append(HIDDEN if hide_next else redact(part))
        hide_next = bool(_SECRET_OPTION.match(part))
    return tuple(out)


def redact_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with the values of secret-looking names hidden and the others redacted."""
    return {k: HIDDEN if _SECRET_NAME.search(k) else redact(v) for k, v in environment.items()}


def plain(text: str, limit: int | None = None) -> str:
    """`text` without terminal escapes, control and bidirectional-override characters, cut to `limit` characters."""
    if limit is not None:
        text = text[: limit * 4]
    text = _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", _ESCAPES.sub("", text.replace("\r\n", "\n")).replace("\r", "\n"))
    if limit is not None and len(text) > limit:
        return text[: max(0, limit - 1)] + "…"
    return text
