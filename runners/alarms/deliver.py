"""Deliver alarms: files first, then the webhook, then mail. What a channel took is remembered on disk, what not is tried next time.

Traps: a webhook that is down at night swallows the alarm; a crash between telling and remembering tells it twice; a redirect carries the
signature elsewhere. Rules: an alarm's key is remembered for each channel as soon as that channel took it; retries have a bound and growing
pauses; redirects are not followed; no failure of a channel stops another one, and each is said.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from email.message import EmailMessage
from pathlib import Path

import httpx
from pydantic import TypeAdapter, ValidationError

from results.errors import StoreError
from results.redact import plain
from runners.alarms.feed import MOST_ENTRIES, Told, atom, markdown
from runners.alarms.news import Alarm
from runners.alarms.settings import SECRET_VARIABLE, AlarmSettings, Mail, Webhook

STATE_NAME = "told.json"
_MOST_TOLD = 5_000
_MAIL_TIMEOUT_S = 60.0
_FIRST_PAUSE_S = 2.0
_RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class _State:
    told: tuple[Told, ...] = ()
    """Alarms that are in the feed, oldest first."""
    sent: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Channel to the keys that it took."""


_STATE: TypeAdapter[_State] = TypeAdapter(_State)


@dataclass(frozen=True)
class Delivery:
    """What happened: `new` alarms (never told before), where the summary is, and the channels that failed."""

    new: tuple[Alarm, ...]
    summary: Path
    feed: Path
    problems: tuple[str, ...] = ()


def send_mail(mail: Mail, message: EmailMessage) -> None:
    """Hand a message to sendmail. Raises OSError or SubprocessError."""
    command = [mail.sendmail, "-i", "-f", mail.sender, "--", *mail.to]
    subprocess.run(command, input=message.as_bytes(), capture_output=True, timeout=_MAIL_TIMEOUT_S, check=True)


@dataclass(frozen=True)
class Post:
    """Everything of the outside world that delivering uses."""

    client: Callable[[], httpx.Client] = lambda: httpx.Client(follow_redirects=False)
    mail: Callable[[Mail, EmailMessage], None] = send_mail
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)


class Bell:
    """Tells each alarm once. Its memory is `alarms/told.json` below the store's folder."""

    def __init__(self, root: Path, settings: AlarmSettings, post: Post | None = None) -> None:
        self._folder = root / "alarms"
        self._settings = settings
        self._post = post or Post()
        self.summary = Path(settings.summary).expanduser() if settings.summary else self._folder / "summary.md"
        self.feed = Path(settings.feed).expanduser() if settings.feed else self._folder / "feed.xml"

    def told(self) -> frozenset[str]:
        """Keys of every alarm that was told."""
        return frozenset(told.alarm.key for told in self._read().told)

    def ring(self, alarms: Sequence[Alarm], title: str, facts: Sequence[str] = ()) -> Delivery:
        """Tell what is new, and what a channel did not take last time. Raises StoreError if not even the files can be written."""
        try:
            return self._ring(alarms, title, facts)
        except OSError as error:
            where = str(error.filename or self._folder)
            raise StoreError(
                f"alarms cannot be written: {error.strerror or error}", where=where, todo="Free space on that disk."
            ) from error

    def _ring(self, alarms: Sequence[Alarm], title: str, facts: Sequence[str]) -> Delivery:
        state = self._read()
        known = {told.alarm.key for told in state.told}
        new = tuple(alarm for alarm in {a.key: a for a in alarms}.values() if alarm.key not in known)
        now = self._post.now().isoformat(timespec="seconds")
        state = _State((*state.told, *(Told(alarm, now) for alarm in new))[-_MOST_TOLD:], dict(state.sent))
        _replace(self.summary, markdown(title, new, facts).encode())
        _replace(self.feed, atom(state.told[-MOST_ENTRIES:], now))
        channels = self._channels()
        for channel, _ in channels:
            state.sent.setdefault(channel, tuple(known))  # a channel that is new gets no old news
        self._write(state)
        problems = []
        for channel, send in channels:
            waiting = [told.alarm for told in state.told if told.alarm.key not in state.sent[channel]]
            taken, problem = send(waiting, title, facts) if waiting else ([], None)
            if taken:
                state.sent[channel] = (*state.sent[channel], *(alarm.key for alarm in taken))[-_MOST_TOLD:]
                self._write(state)
            problems += [f"{channel}: {problem}"] if problem else []
        return Delivery(new, self.summary, self.feed, tuple(problems))

    def _channels(self) -> list[tuple[str, Callable[[list[Alarm], str, Sequence[str]], tuple[list[Alarm], str | None]]]]:
        channels = []
        webhook, mail = self._settings.webhook, self._settings.mail
        if webhook is not None and webhook.url is not None:
            channels.append(("webhook", lambda alarms, title, facts: self._call(webhook, alarms)))
        if mail is not None:
            channels.append(("mail", lambda alarms, title, facts: self._mail(mail, alarms, title, facts)))
        return channels

    def _call(self, webhook: Webhook, alarms: list[Alarm]) -> tuple[list[Alarm], str | None]:
        taken: list[Alarm] = []
        with self._post.client() as client:
            for alarm in alarms:
                problem = self._post_one(client, webhook, alarm)
                if problem is not None:
                    return taken, problem
                taken.append(alarm)
        return taken, None

    def _post_one(self, client: httpx.Client, webhook: Webhook, alarm: Alarm) -> str | None:
        body = json.dumps({"source": "sparkproof", **asdict(alarm), "text": f"{alarm.title}: {alarm.reason}"}).encode()
        problem = "never tried"
        for attempt in range(webhook.attempts):
            if attempt:
                self._post.sleep(_FIRST_PAUSE_S * 2 ** (attempt - 1))
            try:
                answer = client.post(webhook.url or "", content=body, headers=self._headers(body), timeout=webhook.timeout_s)
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                problem = type(error).__name__  # its text may hold the URL, which may be the secret
                continue
            if answer.is_success:
                return None
            problem = f"HTTP {answer.status_code}"
            if answer.status_code not in _RETRIED:
                break
        return f"not delivered after {attempt + 1} attempt(s): {problem}"

    def _headers(self, body: bytes) -> dict[str, str]:
        secret = self._post.environ.get(SECRET_VARIABLE)
        signature = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest() if secret else None
        return {"Content-Type": "application/json", **({"X-Sparkproof-Signature": f"sha256={signature}"} if signature else {})}

    def _mail(self, mail: Mail, alarms: list[Alarm], title: str, facts: Sequence[str]) -> tuple[list[Alarm], str | None]:
        message = EmailMessage()
        message["Subject"] = plain(f"Sparkproof: {alarms[0].title}" + (f" and {len(alarms) - 1} more" if len(alarms) > 1 else ""), 200)
        message["From"], message["To"] = mail.sender, ", ".join(mail.to)
        message.set_content(markdown(title, alarms, facts))
        try:
            self._post.mail(mail, message)
        except (OSError, subprocess.SubprocessError) as error:
            return [], f"{mail.sendmail} failed: {plain(str(error), 200)}"
        return alarms, None

    def _read(self) -> _State:
        try:
            return _STATE.validate_json((self._folder / STATE_NAME).read_bytes())
        except FileNotFoundError:
            return _State()
        except ValidationError:
            (self._folder / STATE_NAME).replace(self._folder / f"{STATE_NAME}.damaged")
            return _State()

    def _write(self, state: _State) -> None:
        _replace(self._folder / STATE_NAME, _STATE.dump_json(state, indent=1))


def _replace(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
