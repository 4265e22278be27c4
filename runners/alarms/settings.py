"""Where alarms go: `alarms.toml` in the user's configuration folder, and secrets from the environment.

Trap: a webhook's secret in a file that is copied into a bug report. Rule: the file holds no secrets; the environment does, and nothing of
it is shown or stored.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import platformdirs
from pydantic import Field, field_validator

from suites.toml_files import SuiteModel, read_toml

SETTINGS_NAME = "alarms.toml"
URL_VARIABLE = "SPARKPROOF_WEBHOOK_URL"
"""In place of `webhook.url`, for services whose URL is itself the secret."""
SECRET_VARIABLE = "SPARKPROOF_WEBHOOK_SECRET"
"""Key of the HMAC-SHA256 over the body, sent as `X-Sparkproof-Signature: sha256=HEX`."""


class Webhook(SuiteModel):
    """A POST of one JSON object for each alarm."""

    url: str | None = None
    attempts: int = Field(default=4, ge=1, le=10)
    timeout_s: float = Field(default=15.0, gt=0, le=120)

    @field_validator("url")
    @classmethod
    def _is_http(cls, url: str | None) -> str | None:
        if url is not None and not url.startswith(("http://", "https://")):
            raise ValueError("expected an http:// or https:// URL")
        return url


class Mail(SuiteModel):
    """One message for each night with alarms, through the node's own sendmail program."""

    to: tuple[str, ...] = Field(min_length=1)
    sender: str = "sparkproof@localhost"
    sendmail: str = "/usr/sbin/sendmail"

    @field_validator("to", "sender")
    @classmethod
    def _is_address(cls, value: tuple[str, ...] | str) -> tuple[str, ...] | str:
        for address in (value,) if isinstance(value, str) else value:
            if not 0 < len(address) <= 254 or address.startswith("-") or any(c.isspace() or not c.isprintable() for c in address):
                raise ValueError(f"{address[:60]!r} is no mail address")
        return value


class AlarmSettings(SuiteModel):
    """The file. Summary and feed are always written, beside the store unless said otherwise."""

    summary: str | None = None
    feed: str | None = None
    webhook: Webhook | None = None
    mail: Mail | None = None


def settings_path(environ: Mapping[str, str] = os.environ) -> Path:
    """`$SPARKPROOF_ALARMS`, or `alarms.toml` in the user's configuration folder."""
    chosen = environ.get("SPARKPROOF_ALARMS")
    return Path(chosen).expanduser() if chosen else platformdirs.user_config_path("sparkproof") / SETTINGS_NAME


def read_settings(path: Path | None = None, environ: Mapping[str, str] = os.environ) -> AlarmSettings:
    """The settings; the defaults if there is no file. Raises SuiteError naming file and line."""
    found = path or settings_path(environ)
    settings = read_toml(found, AlarmSettings) if found.exists() else AlarmSettings()
    url = environ.get(URL_VARIABLE)
    if url:
        webhook = Webhook.model_validate({**(settings.webhook or Webhook()).model_dump(), "url": url})
        settings = settings.model_copy(update={"webhook": webhook})
    return settings
