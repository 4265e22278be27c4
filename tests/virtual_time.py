"""A scripted engine without sockets, in time that only moves when everybody waits.

Trap: a test that measures a real server on a loaded machine measures the machine. Rule: what depends on time is tested in an event loop
whose clock jumps to the next timer instead of sleeping: a rate comes out exactly as scripted, and a limit of ten minutes takes no time.
"""

from __future__ import annotations

import asyncio
import json
import selectors
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from tests.scripted_engine import ScriptedEngine
from tests.scripted_script import Act, Step


class _JumpingSelector(selectors.DefaultSelector):
    """Never sleeps: a wait with a limit moves the clock by it instead."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            return super().select(None)
        self.now += max(0.0, timeout)
        return super().select(0)


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.jumping = _JumpingSelector()
        super().__init__(self.jumping)

    def time(self) -> float:
        return self.jumping.now


class VirtualTime(asyncio.DefaultEventLoopPolicy):
    """Event loops whose time is virtual; `clock` reads the newest one's."""

    def __init__(self) -> None:
        super().__init__()
        self._newest: _VirtualLoop | None = None

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        self._newest = _VirtualLoop()
        return self._newest

    def clock(self) -> float:
        """Seconds since the newest loop began."""
        return 0.0 if self._newest is None else self._newest.time()


@contextmanager
def virtual_time() -> Iterator[VirtualTime]:
    """Every event loop started inside runs in virtual time. Not for code that waits for sockets or threads."""
    policy = VirtualTime()
    asyncio.set_event_loop_policy(policy)
    try:
        yield policy
    finally:
        asyncio.set_event_loop_policy(None)


class ScriptedTransport(httpx.AsyncBaseTransport):
    """Hands requests to a `ScriptedEngine` in the client's own event loop."""

    def __init__(self, engine: ScriptedEngine) -> None:
        self.engine = engine
        self._dead = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self._dead:
            raise httpx.ConnectError("All connection attempts failed", request=request)
        content = await request.aread()
        reply = self.engine.reply(request.method, request.url.path, json.loads(content) if content else None)
        if reply.steps is not None:
            return httpx.Response(200, stream=_Stream(self, reply.steps))
        if isinstance(reply.answer, str):
            return httpx.Response(reply.status, stream=_Stream(self, iter([Step(0.0, reply.answer.encode())])))
        return httpx.Response(reply.status, stream=_Stream(self, iter([Step(0.0, json.dumps(reply.answer).encode())])))

    def die(self) -> None:
        """From now on nobody answers."""
        self._dead = True


class _Stream(httpx.AsyncByteStream):
    def __init__(self, transport: ScriptedTransport, steps: Iterator[Step]) -> None:
        self._transport, self._steps = transport, steps

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for step in self._steps:
            await asyncio.sleep(step.delay_s)
            if step.data:
                yield step.data
            await self._act(step.act)

    async def _act(self, act: Act) -> Any:
        if act is Act.HANG:
            await asyncio.Event().wait()
        if act is Act.DIE:
            self._transport.die()
        if act is not Act.GO_ON:
            raise httpx.ReadError("connection lost")
