"""A proxy on loopback that corrupts the answers of a real engine: `python -m benchmarks.gate.proxy --upstream URL --port N --fault NAME`.

What it does stands for faults that no checkpoint can have: a sampler that gets stuck after N tokens, a batch of eight that overwrites a
row, a request that gets the answer of the one before it, and a front end that loses or doubles the BOS token. Streams pass through as they
are.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

import httpx

MOST_BYTES = 16 << 20
FLOOD_AFTER = 12
BATCH = 8
POSITION = 3


class Corruption:
    """`answer` is what the client gets in place of what the engine said. Kept between requests: what is stale must have been fresh once."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.change = FAULTS[fault]
        self.in_flight = 0
        self.previous: dict[str, Any] = {}

    def answer(self, path: str, body: Mapping[str, Any], said: Any, company: int) -> Any:
        """The corrupted answer; what is no generation stays as it is."""
        if not isinstance(said, dict) or body.get("prompt_logprobs") is not None:
            return said
        return self.change(self, path, body, said, company)

    def information(self, path: str, said: Any) -> Any:
        """What the engine says of itself, as the client gets it."""
        return said


def asked(fault: str, body: dict[str, Any]) -> dict[str, Any]:
    """The request as it reaches the engine: without its BOS token, or with two, where that is the fault."""
    field = next((name for name in ("input_ids", "prompt") if isinstance(body.get(name), list)), None)
    if field is None or fault not in ("no_bos", "two_bos"):
        return body
    ids = body[field]
    return {**body, field: ids[1:] if fault == "no_bos" else [ids[0], *ids]}


def _no_fault(proxy: Corruption, path: str, body: Mapping[str, Any], said: Any, company: int) -> Any:
    return said


def _flood(proxy: Corruption, path: str, body: Mapping[str, Any], said: Any, company: int) -> Any:
    """Token 0 for ever, from token `FLOOD_AFTER` on."""
    wanted = int(body.get("max_tokens") or (body.get("sampling_params") or {}).get("max_new_tokens") or 16)

    def change(ids: list[int], text: str) -> tuple[list[int], str]:
        kept = min(FLOOD_AFTER, len(ids)) if ids else FLOOD_AFTER
        shown = text[: len(text) * kept // max(len(ids), 1)] if ids else text[: 3 * kept]
        return ids[:kept] + [0] * (wanted - kept), shown + "!" * (wanted - kept)

    return _changed(said, change, finish="length")


def wrong_token(proxy: Corruption, path: str, body: Mapping[str, Any], said: Any, company: int) -> Any:
    """One token changed in every answer."""
    return _batch(proxy, path, body, said, BATCH)


def _batch(proxy: Corruption, path: str, body: Mapping[str, Any], said: Any, company: int) -> Any:
    """One token changed, in batches of eight and more only."""
    if company < BATCH:
        return said

    def change(ids: list[int], text: str) -> tuple[list[int], str]:
        at = min(POSITION, len(ids) - 1)
        return [i + 1 if n == at else i for n, i in enumerate(ids)], text[::-1] if not ids else text[: at * 4] + "#" + text[at * 4 + 1 :]

    return _changed(said, change, finish=None)


def _stale(proxy: Corruption, path: str, body: Mapping[str, Any], said: Any, company: int) -> Any:
    """The answer to the previous request of this path."""
    before, proxy.previous[path] = proxy.previous.get(path, said), said
    return before


FAULTS: dict[str, Callable[[Corruption, str, Mapping[str, Any], Any, int], Any]] = {
    "none": _no_fault,
    "no_bos": _no_fault,
    "two_bos": _no_fault,
    "flood": _flood,
    "batch": _batch,
    "stale": _stale,
}


def _changed(said: dict[str, Any], change: Callable[[list[int], str], tuple[list[int], str]], *, finish: str | None) -> dict[str, Any]:
    """The answer of either engine with other ids and text; log-probabilities follow the ids."""
    out: dict[str, Any] = json.loads(json.dumps(said))
    if "output_ids" in out:
        before = out["output_ids"]
        out["output_ids"], out["text"] = change(before, out.get("text") or "")
        meta = out.setdefault("meta_info", {})
        for name in ("output_token_logprobs", "output_top_logprobs"):
            if isinstance(meta.get(name), list):
                meta[name] = _fitted(meta[name], len(out["output_ids"]))
        for entry, token in zip(meta.get("output_token_logprobs") or (), out["output_ids"], strict=False):
            entry[1] = token
        if finish is not None:
            meta["finish_reason"] = {"type": finish}
        return out
    choice = out["choices"][0]
    ids, text = change(choice.get("token_ids") or [], _text_of(choice))
    if choice.get("token_ids") is not None:
        choice["token_ids"] = ids
    _set_text(choice, text)
    logprobs = choice.get("logprobs")
    if isinstance(logprobs, dict) and "token_logprobs" in logprobs:
        for name in ("token_logprobs", "top_logprobs"):
            logprobs[name] = _fitted(logprobs[name], len(ids))
        logprobs["tokens"] = [f"token_id:{i}" for i in ids]
    if finish is not None:
        choice["finish_reason"] = finish
    return out


def _fitted(values: list[Any], length: int) -> list[Any]:
    return json.loads(json.dumps((values + values[-1:] * length)[:length])) if values else values


def _text_of(choice: Mapping[str, Any]) -> str:
    message = choice.get("message")
    return str((message.get("content") if isinstance(message, dict) else choice.get("text")) or "")


def _set_text(choice: dict[str, Any], text: str) -> None:
    if isinstance(choice.get("message"), dict):
        choice["message"]["content"] = text
    else:
        choice["text"] = text


async def serve(upstream: str, port: int, corruption: Corruption) -> None:
    """Forward until cancelled."""
    limits = httpx.Limits(max_connections=64)
    async with httpx.AsyncClient(base_url=upstream, timeout=600, trust_env=False, limits=limits) as client:

        async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while (request := await _read(reader)) is not None:
                    writer.write(await _forward(client, corruption, *request))
                    await writer.drain()
            except (ConnectionError, asyncio.IncompleteReadError):
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(connection, "127.0.0.1", port)
        async with server:
            await server.serve_forever()


async def _read(reader: asyncio.StreamReader) -> tuple[str, str, bytes] | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    except asyncio.IncompleteReadError:
        return None
    method, path, _ = head[0].split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
    length = int(headers.get("content-length", "0"))
    return (method, path, await reader.readexactly(length)) if length <= MOST_BYTES else None


async def _forward(client: httpx.AsyncClient, corruption: Corruption, method: str, path: str, raw: bytes) -> bytes:
    if raw:
        raw = json.dumps(asked(corruption.fault, json.loads(raw))).encode()
    corruption.in_flight += 1
    company = corruption.in_flight
    try:
        answer = await client.request(method, path, content=raw or None, headers={"content-type": "application/json"})
        company = max(company, corruption.in_flight)
    finally:
        corruption.in_flight -= 1
    data = answer.content
    if answer.status_code == 200 and answer.headers.get("content-type", "").startswith("application/json"):
        said = json.loads(data)
        told = corruption.answer(path, json.loads(raw), said, company) if method == "POST" else corruption.information(path, said)
        data = json.dumps(told).encode()
    kind = answer.headers.get("content-type", "application/json")
    head = f"HTTP/1.1 {answer.status_code} Proxied\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


def main() -> None:
    """Run the proxy."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--upstream", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--fault", choices=sorted(FAULTS), required=True)
    options = parser.parse_args()
    try:
        asyncio.run(serve(options.upstream, options.port, Corruption(options.fault)))
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    main()
