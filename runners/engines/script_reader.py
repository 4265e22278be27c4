"""The serve command and its environment in a shell script or an env file, read as text and never run.

Trap: the script a user pastes holds line continuations, quoted JSON, arrays and `docker run` wrappers, and running it to find out what it
does would start a server. Rule: it is split with `shlex` only; variables are filled in from the script's own assignments and from nowhere
else.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from runners.errors import UsageError
from suites.regular_file import not_regular

MAX_BYTES = 1 << 20
_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]{0,127})\+?=(?P<value>.*)", re.DOTALL)
_ARRAY = re.compile(r"^\s*(?:declare\s+-a\s+|local\s+|readonly\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_]{0,127})(?P<more>\+?)=\(")
_VARIABLE = re.compile(
    r"\$(?:\{(?P<braced>[A-Za-z_][A-Za-z0-9_]{0,127})(?P<all>\[[@*]\])?(?::?-(?P<default>[^{}]{0,400}))?\}|(?P<plain>[A-Za-z_][A-Za-z0-9_]{0,127}))"
)
_OPERATORS = {"&", "&&", "|", "||", ";", ";;", ">", ">>", "<", "2>", "2>&1", ">&", "&>", "(", ")", "{", "}", "then", "do", "else"}
_WRAPPERS = {"exec", "nohup", "sudo", "time", "setsid", "stdbuf", "command", "uv", "run", "conda", "-E", "-oL"}
_IMAGE = re.compile(r"(?:[\w.-]+(?::\d+)?/)*(?:vllm-openai|vllm|sglang)[\w.-]*:(?P<tag>[\w.+-]{1,128})$")
_DOCKER_VALUES = {
    "-v", "--volume", "-p", "--publish", "--name", "--gpus", "--ipc", "--network", "--net", "--shm-size", "--ulimit", "--mount", "-w",
    "--workdir", "--runtime", "--device", "--memory", "-u", "--user", "--restart", "--entrypoint", "--cpus", "--platform",
    "--add-host", "-h", "--hostname", "--cap-add", "--security-opt", "--label", "-l", "--pull", "--log-driver", "--log-opt",
    "--group-add", "--pid",
}  # fmt: skip
"""Options of `docker run` that take the next word as their value."""

_VERSION_PIN = re.compile(r"\b(?P<engine>vllm|sglang)(?:\[[\w,-]{1,80}\])?==(?P<version>\d[\w.+-]{0,60})")
_TAG_VERSION = re.compile(r"v?(?P<version>\d+\.\d+(?:\.\d+)?(?:\.?post\d+|rc\d+)?)(?=$|[-_+])")


@dataclass(frozen=True)
class ServeCommandText:
    """What a script serves with. `arguments` are those after the serve command; `line` is where it begins (from 1)."""

    engine: str | None
    version: str | None
    arguments: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    environment_lines: dict[str, int] = field(default_factory=dict)
    line: int = 0
    unresolved: tuple[str, ...] = ()
    """Variables of the serve command that the script itself does not set."""


@dataclass
class _Reader:
    scalars: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, list[str]] = field(default_factory=dict)
    exported: dict[str, str] = field(default_factory=dict)
    exported_lines: dict[str, int] = field(default_factory=dict)
    unresolved: list[str] = field(default_factory=list)
    version: dict[str, str] = field(default_factory=dict)


def read_script(path: Path) -> ServeCommandText:
    """Read a serve script. Raises UsageError when it cannot be read, is no text, or holds no serve command of an engine we know."""
    text = _text(path)
    reader = _Reader()
    command: ServeCommandText | None = None
    for number, line in _logical_lines(text, path):
        for found in _VERSION_PIN.finditer(line):
            reader.version.setdefault(found["engine"], found["version"])
        if _take_array(reader, line):
            continue
        command = command or _command(reader, _split(reader, line), number)
    if command is None:
        raise UsageError(
            "holds no serve command.",
            where=str(path),
            todo="Expected `vllm serve ...`, `python -m sglang.launch_server ...` or a docker run of it.",
        )
    environment = {**reader.exported, **command.environment}
    version = command.version or reader.version.get(command.engine or "")
    lines = {**reader.exported_lines, **command.environment_lines}
    return ServeCommandText(
        command.engine, version, command.arguments, environment, lines, command.line, tuple(dict.fromkeys(reader.unresolved))
    )


def read_env_file(path: Path) -> dict[str, str]:
    """NAME=VALUE lines of an env file ("export " and quotes allowed, # comments). Raises UsageError naming file and line."""
    values: dict[str, str] = {}
    for number, raw in enumerate(_text(path).splitlines(), 1):
        line = raw.strip().removeprefix("export ").strip()
        if not line or line.startswith("#"):
            continue
        found = _ASSIGNMENT.fullmatch(line)
        if found is None:
            raise UsageError("is no assignment; expected NAME=VALUE.", where=f"{path}:{number}")
        try:
            parts = shlex.split(found["value"], comments=True)
        except ValueError as error:
            raise UsageError(f"cannot be read: {error}.", where=f"{path}:{number}") from error
        values[found["name"]] = " ".join(parts)
    return values


def _text(path: Path) -> str:
    try:
        if (what := not_regular(path)) is not None:
            raise UsageError(f"{what}.", where=str(path), todo="Give a serve script or an env file.")
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}.", where=str(path)) from error
    if len(raw) > MAX_BYTES:
        raise UsageError(f"is larger than {MAX_BYTES:,} bytes.", where=str(path), todo="Give a serve script or an env file.")
    if b"\0" in raw:
        raise UsageError("is no text file.", where=str(path), todo="Give a serve script or an env file.")
    return raw.decode("utf-8", "replace")


def _logical_lines(text: str, path: Path) -> Iterator[tuple[int, str]]:
    """Lines joined at continuations, over open quotes and open arrays, with the number of their first line."""
    pending, first = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        if not pending:
            first = number
            if raw.lstrip().startswith("#"):
                continue
        continued = raw.endswith("\\") and not raw.endswith("\\\\")
        pending += raw[:-1] + " " if continued else raw
        if continued:
            continue
        if _open_quote(pending) or (_ARRAY.match(pending) and not _closed_array(pending)):
            pending += "\n"
            continue
        yield first, pending
        pending = ""
    if pending:
        if _open_quote(pending):
            raise UsageError("a quote is never closed.", where=f"{path}:{first}")
        yield first, pending


def _open_quote(line: str) -> bool:
    try:
        shlex.split(line, comments=True)
    except ValueError:
        return True
    return False


def _closed_array(line: str) -> bool:
    return line.rstrip().endswith(")")


def _take_array(reader: _Reader, line: str) -> bool:
    found = _ARRAY.match(line)
    if found is None:
        return False
    inner = line[found.end() :].rstrip().removesuffix(")")
    parts = [_expand(reader, part) for part in shlex.split(inner, comments=True)]
    if found["more"]:
        reader.arrays.setdefault(found["name"], []).extend(parts)
    else:
        reader.arrays[found["name"]] = parts
    return True


def _split(reader: _Reader, line: str) -> list[str]:
    return [word for raw in _raw_words(line) for word in _words(reader, raw)]


def _raw_words(line: str) -> Iterator[str]:
    """Shell words with their quotes kept; ; & | ( ) outside quotes are words of their own, a # that begins a word ends the line."""
    word, quote = "", ""
    position = 0
    while position < len(line):
        char = line[position]
        position += 1
        if quote:
            word += char
            if char == "\\" and quote == '"' and position < len(line):
                word += line[position]
                position += 1
            elif char == quote:
                quote = ""
        elif char == "\\" and position < len(line):
            word += char + line[position]
            position += 1
        elif char in "'\"":
            word, quote = word + char, char
        elif char.isspace() or char in ";&|":
            if word:
                yield word
            word = ""
            if char in ";&|\n":
                yield ";" if char == "\n" else char
        elif char == "#" and not word:
            break
        else:
            word += char
    if word:
        yield word


def _words(reader: _Reader, raw: str) -> list[str]:
    """One shell word with its variables filled in; an unquoted variable may be several words, a single-quoted one is none."""
    if raw in _OPERATORS:
        return [raw]
    whole = _VARIABLE.fullmatch(raw.strip('"'))
    if whole is not None and whole["all"]:
        return list(reader.arrays.get(whole["braced"], ()))
    if whole is not None and not raw.startswith('"'):
        return _expand(reader, raw).split() or []
    text = raw if raw.startswith("'") else _expand(reader, raw)
    try:
        return ["".join(shlex.split(text))] if text else []
    except ValueError:
        return [text]


def _expand(reader: _Reader, text: str) -> str:
    def value(found: re.Match[str]) -> str:
        name = found["braced"] or found["plain"]
        known = reader.scalars.get(name, found["default"])
        if known is None:
            reader.unresolved.append(name)
            return found[0]
        return known

    return _VARIABLE.sub(value, text) if "$" in text else text


def _command(reader: _Reader, tokens: list[str], number: int) -> ServeCommandText | None:
    """Note assignments; return the serve command if the line is one."""
    prefix: dict[str, str] = {}
    export = False
    index = 0
    while index < len(tokens):
        token = tokens[index]
        found = _ASSIGNMENT.fullmatch(token)
        if token in ("export", "env", "declare", "-x", "local", "readonly") or token in _WRAPPERS or token in _OPERATORS:
            export = export or token in ("export", "-x")
            if token in _OPERATORS:
                _assign(reader, prefix, number, exported=export)
                prefix, export = {}, False
        elif found is not None:
            prefix[found["name"]] = found["value"]
        else:
            command = _serve(tokens[index:], number)
            if command is None:
                command = _serve_later(tokens[index + 1 :], number)
            if command is not None:
                return ServeCommandText(
                    command.engine,
                    command.version,
                    command.arguments,
                    {**prefix, **command.environment},
                    dict.fromkeys({**prefix, **command.environment}, number),
                    number,
                )
            break
        index += 1
    _assign(reader, prefix, number, exported=export)
    return None


def _assign(reader: _Reader, values: dict[str, str], number: int, *, exported: bool) -> None:
    """Without `export` an assignment is seen by the script only, unless the name was exported before."""
    reader.scalars.update(values)
    for name, value in values.items():
        if exported or name in reader.exported or name.startswith(("VLLM_", "SGLANG_", "SGL_")):
            reader.exported[name] = value
            reader.exported_lines[name] = number


def _serve_later(tokens: list[str], number: int) -> ServeCommandText | None:
    """The serve command behind an operator (`cd x && vllm serve ...`) or an unknown wrapper."""
    for start, token in enumerate(tokens):
        if token in ("vllm", "sglang", "docker", "podman") or token.endswith(("/vllm", "/sglang")) or token == "-m":
            command = _serve(tokens[start - 1 if token == "-m" and start else start :], number)
            if command is not None:
                return command
    return None


def _serve(tokens: list[str], number: int) -> ServeCommandText | None:
    if not tokens:
        return None
    name = tokens[0].rsplit("/", 1)[-1]
    if name in ("docker", "podman") and "run" in tokens[:3]:
        return _docker(tokens[tokens.index("run") + 1 :], number)
    rest = tokens[1:]
    if name == "vllm" and rest[:1] == ["serve"]:
        return ServeCommandText("vllm", None, _until_operator(rest[1:]), line=number)
    if name == "sglang" and rest[:1] == ["serve"]:
        return ServeCommandText("sglang", None, _until_operator(rest[1:]), line=number)
    if "-m" in tokens[:4]:
        module = tokens.index("-m") + 1
        target, after = (tokens[module], tokens[module + 1 :]) if module < len(tokens) else ("", [])
        if target == "vllm.entrypoints.cli.main" and after[:1] == ["serve"]:
            after = after[1:]
        elif target not in ("vllm.entrypoints.openai.api_server", "sglang.launch_server", "sglang"):
            return None
        elif target == "sglang":
            if after[:1] != ["serve"]:
                return None
            after = after[1:]
        return ServeCommandText("vllm" if target.startswith("vllm") else "sglang", None, _until_operator(after), line=number)
    return None


def _docker(tokens: list[str], number: int) -> ServeCommandText | None:
    environment: dict[str, str] = {}
    index = 0
    while index < len(tokens):
        token = tokens[index]
        if token in ("-e", "--env") and index + 1 < len(tokens):
            _env_option(environment, tokens[index + 1])
            index += 2
        elif token.startswith("--env="):
            _env_option(environment, token.removeprefix("--env="))
            index += 1
        elif token in _DOCKER_VALUES:
            index += 2
        elif token.startswith("-"):
            index += 1
        else:
            break
    if index >= len(tokens):
        return None
    image, after = tokens[index], tokens[index + 1 :]
    inner = _serve(after, number) or _serve_later(after, number)
    found = _IMAGE.search(image)
    if inner is None and "vllm-openai" in image:
        inner = ServeCommandText("vllm", None, _until_operator(after), line=number)
    if inner is None:
        return None
    tag = _TAG_VERSION.match(found["tag"]) if found is not None else None
    return ServeCommandText(
        inner.engine, tag["version"] if tag else None, inner.arguments, {**environment, **inner.environment}, line=number
    )


def _env_option(environment: dict[str, str], text: str) -> None:
    name, equals, value = text.partition("=")
    if equals:
        environment[name] = value


def _until_operator(tokens: list[str]) -> tuple[str, ...]:
    for index, token in enumerate(tokens):
        if token in _OPERATORS or token.startswith((">", "2>", "&>")):
            return tuple(tokens[:index])
    return tuple(tokens)
