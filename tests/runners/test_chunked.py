"""A chunked body is read the same however it arrives, and what is none is refused."""

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.chunked import Chunks


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def read_whole(body: bytes, sizes: list[int]) -> tuple[bytes, bool]:
    """The data of a chunked body that came in reads of these sizes, and whether it ended."""
    chunks, data, at = Chunks(), b"", 0
    for size in [*sizes, len(body)]:
        if body[at:]:
            data += chunks.feed(body[at : at + size])
        at += size
    return data, chunks.ended


@given(st.lists(st.binary(min_size=1, max_size=40)), st.lists(st.integers(1, 9)), st.booleans())
def test_chunked_body_is_the_same_whatever_the_borders_of_its_reads(pieces: list[bytes], sizes: list[int], upper: bool) -> None:
    body = b"".join(chunk(piece) for piece in pieces) + b"0\r\nTrailer: x\r\n\r\n"
    assert read_whole(body.replace(b"\r\n", b";name=value\r\n", 1) if upper and pieces else body, sizes) == (b"".join(pieces), True)


@given(st.binary(max_size=60), st.lists(st.integers(1, 9)))
def test_no_bytes_break_the_reading_of_chunks(body: bytes, sizes: list[int]) -> None:
    try:
        data, _ = read_whole(body, sizes)
    except httpx.RemoteProtocolError:
        return
    assert len(data) <= len(body)


@pytest.mark.parametrize(
    "body", [b"zz\r\n", b"+5\r\nhello\r\n", b"0x5\r\nhello\r\n", b"-1\r\n", b"1_0\r\n", b"3\r\nabcXX", b"\r\n", b"f" * 17 + b"\r\n"]
)
def test_what_is_no_chunk_is_refused(body: bytes) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        read_whole(body, [])


def test_chunk_head_without_end_is_refused_before_it_fills_the_memory() -> None:
    chunks = Chunks()
    with pytest.raises(httpx.RemoteProtocolError):
        for _ in range(100):
            chunks.feed(b"1" * 1000)
