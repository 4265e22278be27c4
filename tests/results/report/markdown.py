"""Markdown read as GitHub reads it: what is markup and what is only shown."""

from __future__ import annotations

from collections.abc import Iterator

from markdown_it import MarkdownIt
from markdown_it.token import Token

SHOWN = frozenset({"fence", "code_inline", "code_block"})
ACTIVE = frozenset({"html_block", "html_inline", "link_open", "image", "autolink"})


def tokens(text: str) -> Iterator[Token]:
    """All tokens, inline ones included."""
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        yield token
        yield from token.children or ()


def kinds_holding(text: str, word: str) -> set[str]:
    """Kinds of the tokens in which `word` stands (an inline token is only the list of its children)."""
    return {token.type for token in tokens(text) if word in token.content and token.type != "inline"}


def active(text: str) -> set[str]:
    """Kinds of active tokens."""
    return {token.type for token in tokens(text)} & ACTIVE
