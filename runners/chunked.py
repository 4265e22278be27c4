"""The chunked transfer coding of HTTP/1.1, undone.

Trap: it is on the path of every token, and a general parser (h11) would be a fifth of a token's cost. Rule: one read that is one chunk,
the usual case of a stream, is one match and one slice.
"""

import re

import httpx

_CHUNK_HEAD = re.compile(rb"([0-9a-fA-F]{1,16})[ \t]*(?:;[^\r\n]*)?")
_WHOLE_CHUNK = re.compile(rb"([0-9a-fA-F]{1,8})\r\n")
_MAX_CHUNK_HEAD = 4096


class Chunks:
    """The data of a chunked body as it comes; trailers are left out. `ended`: the last chunk was read."""

    def __init__(self) -> None:
        self._rest = b""
        self._missing = 0
        self.ended = False

    def feed(self, data: bytes) -> bytes:
        """What `data` completes or continues. Raises httpx.RemoteProtocolError for what is no chunk."""
        if not self._rest and self._missing == 0 and (whole := _WHOLE_CHUNK.match(data)) is not None:  # one read, one chunk: the usual case
            end = whole.end() + int(whole[1], 16)
            if end + 2 == len(data) and end > whole.end() and data.endswith(b"\r\n"):
                return data[whole.end() : end]
        data, at, pieces = (self._rest + data if self._rest else data), 0, list[bytes]()
        while at < len(data) and not self.ended:
            if self._missing == 0:
                line_end = data.find(b"\r\n", at)
                if line_end < 0:
                    break
                at = self._open(data, at, line_end)
            elif self._missing > 2:
                piece = data[at : at + self._missing - 2]
                at, self._missing = at + len(piece), self._missing - len(piece)
                pieces.append(piece)
            elif self._missing == 2 and data.startswith(b"\r\n", at):
                at, self._missing = at + 2, 0
            else:
                at = self._close(data, at)
        self._rest = data[at:] if at < len(data) else b""
        if self._missing == 0 and len(self._rest) > _MAX_CHUNK_HEAD:
            raise httpx.RemoteProtocolError("a chunk without a head")
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _open(self, data: bytes, at: int, line_end: int) -> int:
        head = _CHUNK_HEAD.fullmatch(data, at, line_end)
        if head is None or line_end - at > _MAX_CHUNK_HEAD:
            raise httpx.RemoteProtocolError(f"not a chunk: {data[at : at + 40]!r}")
        self._missing = int(head[1], 16) + 2
        self.ended = self._missing == 2
        return line_end + 2

    def _close(self, data: bytes, at: int) -> int:
        """Step over the CRLF after a chunk, which may come in two reads."""
        taken = data[at : at + self._missing]
        if taken != b"\r\n"[2 - self._missing :][: len(taken)]:
            raise httpx.RemoteProtocolError(f"a chunk longer than it said: {data[at : at + 40]!r}")
        self._missing -= len(taken)
        return at + len(taken)
