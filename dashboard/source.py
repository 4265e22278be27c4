"""The store as the pages see it: read-only, for moments, and asked once for each state of the database.

Trap: a page that keeps the database open blocks the next run, and a page that asks again on every click gets slow as history grows. Rule:
a page opens the database read-only for its questions and closes it when it is drawn (waiting while a run commits), and each answer is kept
until the file changes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import platformdirs
import streamlit as st

from results.compare import ComparedCell, Question, compare
from results.errors import StoreError
from results.queries.query import Query
from results.self_checks import SelfChecks, self_checks
from results.store import Store

WAIT_S = 20.0
_PATIENCE_S = 0.1
"""So long a page waits for a judgement before it shows what is known without it."""


@dataclass(frozen=True)
class StoreState:
    """What tells one state of the database file from another."""

    database: str
    modified_ns: int
    size: int
    log_size: int


def root() -> Path:
    """`$SPARKPROOF_HOME`, or the user's data directory; nothing a browser sends changes it."""
    return Path(os.environ.get("SPARKPROOF_HOME") or platformdirs.user_data_path("sparkproof")).expanduser().absolute()


def store() -> Store:
    """The store, with a wait short enough for somebody who looks at a page."""
    return Store(root(), wait_s=WAIT_S)


def state() -> StoreState | None:
    """The database's state; None when there is none yet."""
    database = store().database
    try:
        stat = database.stat()
    except OSError:
        return None
    log = database.with_name(database.name + ".wal")
    return StoreState(str(database), stat.st_mtime_ns, stat.st_size, log.stat().st_size if log.exists() else 0)


class Visit:
    """One run of a page: its questions share one connection, opened for the first that was not asked before."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._connection: duckdb.DuckDBPyConnection | None = None

    def connection(self) -> duckdb.DuckDBPyConnection:
        """The connection. Raises StoreError."""
        if self._connection is None:
            self._connection = self._open.enter_context(store().reading())
        return self._connection

    def close(self) -> None:
        """Let go of the database."""
        self._connection = None
        self._open.close()


_VISIT: ContextVar[Visit | None] = ContextVar("visit", default=None)


@contextmanager
def visiting() -> Iterator[None]:
    """Around one run of a page."""
    visit = Visit()
    token = _VISIT.set(visit)
    try:
        yield
    finally:
        _VISIT.reset(token)
        visit.close()


def rows(question: Query) -> list[dict[str, Any]]:
    """The answer as dictionaries. Raises StoreError; an empty list while there is no store."""
    now = state()
    return [] if now is None else _asked(now, question)


def row(question: Query) -> dict[str, Any] | None:
    """The first row of the answer."""
    answer = rows(question)
    return answer[0] if answer else None


def frame(question: Query) -> pd.DataFrame:
    """The answer as a data frame; empty while there is no store."""
    now = state()
    return pd.DataFrame() if now is None else _asked_for_frame(now, question)


# Answers are shared and not copied for each visitor: nobody changes one.
@st.cache_resource(show_spinner=False, max_entries=200)
def _asked(state_: StoreState, question: Query) -> list[dict[str, Any]]:
    visit = _VISIT.get()
    return question.rows(store()) if visit is None else question.rows_on(visit.connection())


@st.cache_data(show_spinner=False, max_entries=50)
def _asked_for_frame(state_: StoreState, question: Query) -> pd.DataFrame:
    visit = _VISIT.get()
    return question.frame(store()) if visit is None else question.frame_on(visit.connection())


def compared(question: Question) -> tuple[list[ComparedCell], int]:
    """Two releases, cell by cell, by the rule that every command uses; worked out once for each state of the store.

    Cells of releases that are no neighbours are judged by a thread of its own; with the rows comes how many are being judged still.
    """
    now = state()
    if now is None:
        return [], 0
    known = _known(now, question)
    left = sum(not cell.judged for cell in known)
    if not left:
        return known, 0
    try:
        return _judging(now, question).result(_PATIENCE_S), 0
    except TimeoutError:
        return known, left
    except StoreError:
        _judging.clear()  # the next look tries again
        raise


def is_compared(question: Question) -> bool:
    """Whether `compared` has nothing to wait for."""
    now = state()
    return now is None or _judging(now, question).done()


@st.cache_resource(show_spinner=False, max_entries=50)
def _known(state_: StoreState, question: Question) -> list[ComparedCell]:
    return compare(store(), question, most_judged=0)


@st.cache_resource(show_spinner=False, max_entries=50)
def _judging(state_: StoreState, question: Question) -> Future[list[ComparedCell]]:
    return _judges().submit(compare, store(), question)


@st.cache_resource(show_spinner=False)
def _judges() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "judge")


def own_false_alarms(node_id: str | None) -> SelfChecks:
    """What our own rule told of nothing, from the boots that were made to find out."""
    now = state()
    return SelfChecks(0, 0, 0, ()) if now is None else _own_false_alarms(now, node_id)


@st.cache_data(show_spinner=False, max_entries=20)
def _own_false_alarms(state_: StoreState, node_id: str | None) -> SelfChecks:
    return self_checks(store(), node_id)
