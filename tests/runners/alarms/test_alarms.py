from __future__ import annotations

import hashlib
import hmac
import json
import subprocess
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from datetime import UTC, datetime
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.errors import StoreError
from runners.alarms.deliver import Bell, Post, send_mail
from runners.alarms.feed import ATOM, Told, atom, markdown
from runners.alarms.news import Alarm, above_roofline, alarms_of, is_bad, of_failure, untold
from runners.alarms.settings import SECRET_VARIABLE, URL_VARIABLE, AlarmSettings, Mail, Webhook, read_settings
from suites.errors import SuiteError

NOW = datetime(2026, 12, 1, 6, 0, tzinfo=UTC)
CELL = {
    "engine": "vllm",
    "distribution": "venv",
    "recipe_name": "canary-dense",
    "backend_name": "marlin",
    "node": "gb10-3f2a",
    "last_run_id": "R1",
}
BROKE = {
    **CELL,
    "finding_id": "f00",
    "subject": "outcome",
    "kind": "broke",
    "after": "0.31.0",
    "release": "0.32.0",
    "stage": "confirmed",
    "reason": "broke in 0.32.0: pass -> incoherent",
    "fixed_in": None,
    "effect": None,
}
SLOWER = {**BROKE, "finding_id": "f01", "subject": "decode_c1/decode_tok_s", "kind": "slower", "reason": "8 % slower", "effect": -0.08}
REPAIR = {**CELL, "history_id": "h1", "release": "0.33.0", "after": "0.32.0", "reason": "fixed in 0.33.0: incoherent -> pass"}

ALARM = alarms_of([BROKE], [])[0]


def test_confirmed_findings_and_repairs_are_news_in_words() -> None:
    broke, slower, fixed = alarms_of([BROKE, SLOWER], [REPAIR])
    assert (broke.kind, slower.kind, fixed.kind) == ("broke", "slower", "fixed")
    assert broke.title == "vllm 0.32.0: canary-dense, marlin: broke"
    assert slower.title == "vllm 0.32.0: canary-dense, marlin: decode_c1/decode_tok_s got worse"
    assert fixed.title == "vllm 0.33.0: canary-dense, marlin: works again"
    assert (slower.effect, slower.run_id, slower.node) == (-0.08, "R1", "gb10-3f2a")


def test_a_rate_that_no_memory_can_deliver_is_bad_news_once_for_each_release_of_a_cell() -> None:
    row = {**CELL, "history_id": "h1", "release": "0.33.0", "run_id": "R1", "decode_tok_s": 300.0, "bytes_per_token": 10**9}
    row |= {"percent": 120.0, "percent_of_nominal": None, "bandwidth_gb_s": 250.0}
    alarms = untold(above_roofline([row, {**row, "run_id": "R2"}, {**row, "release": "0.34.0"}]), ())
    assert [(alarm.kind, alarm.release) for alarm in alarms] == [("above_roofline", "0.33.0"), ("above_roofline", "0.34.0")]
    assert is_bad(alarms[0]) and "300 tok/s x 1 GB a token is 120 %" in alarms[0].reason
    assert "## Faster than the memory allows" in markdown("t", alarms, [])
    assert untold(alarms, [alarm.key for alarm in alarms]) == []


def test_a_repaired_failure_is_told_once_as_a_repair_and_a_recovered_number_as_its_own_news() -> None:
    rows = [{**BROKE, "stage": "fixed", "fixed_in": "0.33.0"}, {**SLOWER, "stage": "fixed", "fixed_in": "0.33.0"}]
    alarms = alarms_of(rows, [REPAIR])
    assert [(a.kind, a.release) for a in alarms] == [("fixed", "0.33.0"), ("fixed", "0.33.0")]
    assert "decode_tok_s is back" in alarms[0].title


def test_each_stage_of_a_finding_has_its_own_key_and_is_told_once() -> None:
    keys = [a.key for a in alarms_of([BROKE, SLOWER, {**SLOWER, "stage": "fixed", "fixed_in": "0.33.0"}], [REPAIR])]
    assert len(set(keys)) == 4
    assert untold([ALARM, ALARM], ()) == [ALARM]
    assert untold([ALARM], {ALARM.key}) == []


def test_a_failing_night_is_told_once_a_day_and_reason() -> None:
    assert of_failure("the index is down", "2026-12-01").key == of_failure("the index is down", "2026-12-01").key
    assert of_failure("the index is down", "2026-12-02").key != of_failure("the index is down", "2026-12-01").key


def test_hostile_text_of_an_engine_becomes_one_harmless_line() -> None:
    (alarm,) = alarms_of([{**BROKE, "reason": "\x1b[31mred\nAuthorization: Bearer abcdefghijklmnop1234567890"}], [])
    assert "\x1b" not in alarm.reason and "\n" not in alarm.reason and "abcdefghijklmnop" not in alarm.reason


def test_markdown_has_a_heading_for_each_kind_and_escapes_what_it_would_interpret() -> None:
    text = markdown("Night of 2026-12-01", [ALARM, of_failure("a <b> [link](x) *y*", "d")], ["boots: 3 pass"])
    assert text.index("## The night itself failed") < text.index("## Broke")
    assert "\\<b\\> \\[link\\]\\(x\\) \\*y\\*" in text
    assert "Nothing confirmed" in markdown("n", [], [])


def test_feed_is_atom_newest_first_with_stable_ids() -> None:
    other = of_failure("down & <out>", "2026-12-01")
    document = ET.fromstring(atom([Told(ALARM, "2026-12-01T06:00:00+00:00"), Told(other, "2026-12-02T06:00:00+00:00")], "x"))
    entries = document.findall(f"{{{ATOM}}}entry")
    assert [e.findtext(f"{{{ATOM}}}title") for e in entries] == [other.title, ALARM.title]
    assert entries[0].findtext(f"{{{ATOM}}}summary") == "down & <out>"
    for name in ("id", "title", "updated"):  # RFC 4287, 4.1.1 and 4.1.2: each exactly once
        assert all(len(element.findall(f"{{{ATOM}}}{name}")) == 1 for element in (document, *entries))
    assert document.findtext(f"{{{ATOM}}}updated") == "2026-12-02T06:00:00+00:00"


@given(st.text(max_size=200))
def test_any_text_makes_a_well_formed_feed(text: str) -> None:
    document = ET.fromstring(atom([Told(Alarm("k", "broke", text, text), "2026-12-01T06:00:00+00:00")], "x"))
    assert document.find(f"{{{ATOM}}}entry") is not None


class Receiver(BaseHTTPRequestHandler):
    """Answers with the statuses of `server.answers` in turn (the last one for ever) and keeps what came."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append((dict(self.headers), body))  # type: ignore[attr-defined]
        answers = self.server.answers  # type: ignore[attr-defined]
        status = answers.pop(0) if len(answers) > 1 else answers[0]
        self.send_response(status)
        if status in (301, 302):
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Quiet."""


@pytest.fixture
def receiver() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    server.received, server.answers = [], [200]  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def bell(root: Path, receiver: ThreadingHTTPServer | None = None, slept: list[float] | None = None, **more: Any) -> Bell:
    webhook = Webhook(url=f"http://127.0.0.1:{receiver.server_port}/hook", attempts=3) if receiver is not None else None
    mails = more.pop("mails", None)

    def mail(settings: Mail, message: EmailMessage) -> None:
        mails.append(message)

    post = Post(
        sleep=(slept if slept is not None else []).append,
        now=lambda: NOW,
        environ=more.pop("environ", {}),
        **({"mail": mail} if mails is not None else {}),
    )
    return Bell(root, AlarmSettings(webhook=webhook, **more), post)


def test_files_are_written_and_nothing_is_told_twice_even_by_another_process(tmp_path: Path) -> None:
    first = bell(tmp_path).ring([ALARM], "Night", ["f"])
    assert first.new == (ALARM,)
    assert "broke" in first.summary.read_text() and first.feed.exists()
    again = bell(tmp_path).ring([ALARM], "Night", [])
    assert again.new == ()
    assert "Nothing confirmed" in again.summary.read_text()
    assert ET.fromstring(again.feed.read_bytes()).find(f"{{{ATOM}}}entry") is not None, "the feed keeps old news"


def test_webhook_gets_signed_json_once(tmp_path: Path, receiver: Any) -> None:
    for _ in range(2):
        assert bell(tmp_path, receiver, environ={SECRET_VARIABLE: "s3cret"}).ring([ALARM], "Night").problems == ()
    ((headers, body),) = receiver.received
    told = json.loads(body)
    assert (told["source"], told["kind"], told["release"], told["key"]) == ("sparkproof", "broke", "0.32.0", ALARM.key)
    expected = hmac.new(b"s3cret", body, hashlib.sha256).hexdigest()
    assert headers["X-Sparkproof-Signature"] == f"sha256={expected}"
    assert b"s3cret" not in body


def test_webhook_that_is_down_for_a_moment_is_tried_again_with_growing_pauses(tmp_path: Path, receiver: Any) -> None:
    receiver.answers = [503, 429, 200]
    slept: list[float] = []
    assert bell(tmp_path, receiver, slept).ring([ALARM], "Night").problems == ()
    assert slept == [2.0, 4.0]


def test_webhook_that_stays_down_is_said_and_gets_the_alarm_next_night(tmp_path: Path, receiver: Any) -> None:
    receiver.answers = [500]
    delivery = bell(tmp_path, receiver).ring([ALARM], "Night")
    assert "webhook: not delivered after 3 attempt(s): HTTP 500" in delivery.problems
    assert delivery.new == (ALARM,), "the exit code does not depend on the channel"
    receiver.answers, receiver.received = [200], []
    assert bell(tmp_path, receiver).ring([], "Night").problems == ()
    assert len(receiver.received) == 1


@pytest.mark.parametrize("status", [400, 404, 302])
def test_webhook_that_refuses_is_not_asked_again_and_no_redirect_is_followed(tmp_path: Path, receiver: Any, status: int) -> None:
    receiver.answers = [status]
    assert f"HTTP {status}" in bell(tmp_path, receiver).ring([ALARM], "Night").problems[0]
    assert len(receiver.received) == 1


def test_webhook_nobody_listens_at_is_a_problem_without_its_url(tmp_path: Path) -> None:
    settings = AlarmSettings(webhook=Webhook(url="http://127.0.0.1:1/T0KEN", attempts=2))
    delivery = Bell(tmp_path, settings, Post(sleep=lambda s: None, now=lambda: NOW)).ring([ALARM], "Night")
    assert delivery.problems == ("webhook: not delivered after 2 attempt(s): ConnectError",)


def test_a_webhook_added_later_gets_no_old_news(tmp_path: Path, receiver: Any) -> None:
    bell(tmp_path).ring([ALARM], "Night")
    bell(tmp_path, receiver).ring([ALARM, of_failure("x", "d")], "Night")
    assert [json.loads(body)["kind"] for _, body in receiver.received] == ["nightly_failed"]


def test_mail_is_one_message_a_night_and_a_failing_channel_stops_no_other(tmp_path: Path, receiver: Any) -> None:
    receiver.answers = [500]
    mails: list[EmailMessage] = []
    rung = bell(tmp_path, receiver, mails=mails, mail=Mail(to=("me@example.org",)))
    assert len(rung.ring([ALARM, of_failure("x", "d")], "Night").problems) == 1
    (message,) = mails
    assert message["To"] == "me@example.org"
    assert message["Subject"] == "Sparkproof: vllm 0.32.0: canary-dense, marlin: broke and 1 more"
    assert "## Broke" in message.get_content()


def test_sendmail_gets_the_message_on_its_input_and_no_shell(tmp_path: Path) -> None:
    program = tmp_path / "sendmail"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/arguments\ncat > {tmp_path}/message\n')
    program.chmod(0o755)
    message = EmailMessage()
    message["Subject"] = "s"
    message.set_content("body")
    send_mail(Mail(to=("a@b", "c@d"), sendmail=str(program)), message)
    assert (tmp_path / "arguments").read_text().split() == ["-i", "-f", "sparkproof@localhost", "--", "a@b", "c@d"]
    assert "body" in (tmp_path / "message").read_text()


def test_sendmail_that_fails_is_said_and_the_alarm_waits(tmp_path: Path) -> None:
    settings = AlarmSettings(mail=Mail(to=("a@b",), sendmail="/nonexistent/sendmail"))
    delivery = Bell(tmp_path, settings, Post(now=lambda: NOW)).ring([ALARM], "Night")
    assert "mail: /nonexistent/sendmail failed" in delivery.problems[0]
    state = json.loads((tmp_path / "alarms" / "told.json").read_text())
    assert state["sent"]["mail"] == []


def test_damaged_memory_is_set_aside_and_the_bell_still_rings(tmp_path: Path) -> None:
    bell(tmp_path).ring([ALARM], "Night")
    (tmp_path / "alarms" / "told.json").write_text("{")
    assert bell(tmp_path).ring([ALARM], "Night").new == (ALARM,)
    assert (tmp_path / "alarms" / "told.json.damaged").exists()


def test_files_that_cannot_be_written_are_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="alarms cannot be written"):
        bell(tmp_path / "file").ring([ALARM], "Night")


def test_summary_and_feed_may_go_elsewhere(tmp_path: Path) -> None:
    delivery = bell(tmp_path, summary=str(tmp_path / "s.md"), feed=str(tmp_path / "www" / "f.xml")).ring([ALARM], "Night")
    assert (delivery.summary, delivery.feed) == (tmp_path / "s.md", tmp_path / "www" / "f.xml")
    assert delivery.feed.exists()


def settings_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "alarms.toml"
    path.write_text(text)
    return path


def test_settings_are_read_and_a_secret_url_comes_from_the_environment(tmp_path: Path) -> None:
    path = settings_file(tmp_path, 'feed = "/srv/f.xml"\n[webhook]\nattempts = 2\n[mail]\nto = ["a@b"]\n')
    settings = read_settings(path, {URL_VARIABLE: "https://hooks.example/T0KEN"})
    assert settings.webhook == Webhook(url="https://hooks.example/T0KEN", attempts=2)
    assert settings.mail is not None and settings.mail.to == ("a@b",)
    assert read_settings(tmp_path / "none.toml", {}) == AlarmSettings()


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('feed = "x"\n[webhok]\nurl = "https://x"\n', 2, "webhook"),
        ('[webhook]\nurl = "ftp://x"\n', 2, "http"),
        ('[mail]\nto = ["-oQ/tmp"]\n', 2, "no mail address"),
        ('[mail]\nto = ["a@b\\nBcc: c@d"]\n', 2, "no mail address"),
        ("[webhook]\nattempts = 0\n", 2, "greater than"),
    ],
)
def test_wrong_settings_are_refused_with_their_line(tmp_path: Path, text: str, line: int, words: str) -> None:
    with pytest.raises(SuiteError) as caught:
        read_settings(settings_file(tmp_path, text), {})
    assert words in str(caught.value)
    assert caught.value.where.endswith(f":{line}")


def test_no_process_is_left_by_a_failing_sendmail(tmp_path: Path) -> None:
    program = tmp_path / "sendmail"
    program.write_text("#!/bin/sh\nexit 75\n")
    program.chmod(0o755)
    with pytest.raises(subprocess.CalledProcessError):
        send_mail(Mail(to=("a@b",), sendmail=str(program)), EmailMessage())
