"""Exports of the rows behind a view."""

from __future__ import annotations

import io

import pandas as pd
import pytest

from dashboard.evidence import as_csv, as_parquet
from results.queries import matrix_page
from results.store import Store


@pytest.fixture
def found() -> pd.DataFrame:
    return pd.DataFrame({"name": ["=1+1", "plain", "-x", None], "value": [-1.5, 2.0, None, 4.0], "list": [["a", "b"], [], None, ["=c"]]})


def test_csv_cannot_become_a_formula(found: pd.DataFrame) -> None:
    lines = as_csv(found).decode().splitlines()
    assert lines[1] == '\'=1+1,-1.5,"a, b"'
    assert lines[3].startswith("'-x,")
    assert lines[4].endswith("'=c")


def test_parquet_is_exact(found: pd.DataFrame) -> None:
    again = pd.read_parquet(io.BytesIO(as_parquet(found)))
    assert again["name"].tolist()[:3] == ["=1+1", "plain", "-x"]
    assert again["value"].tolist()[0] == -1.5


def test_the_sql_that_is_shown_gives_the_same_rows(stores: dict[str, Store]) -> None:
    (cell,) = stores["small"].query("SELECT history_id FROM histories WHERE backend_name = 'flashinfer'")
    question = matrix_page.cells((cell["history_id"],))
    with stores["small"].reading() as connection:
        text = question.text()
        assert text.startswith("-- $histories = ('")
        again = connection.execute(text.rstrip(";"), {"histories": [cell["history_id"]]}).df()
    assert len(again) == len(question.frame(stores["small"])) == 3
