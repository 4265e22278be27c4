import json

from packaging.specifiers import SpecifierSet

from runners.envs.pythons import Candidate, choose, parse_python_list


def candidates(*versions):
    return [Candidate(v, f"/usr/bin/python{v}") for v in versions]


def tried(allowed, *installed):
    return [c.version for c in choose(candidates(*installed), SpecifierSet(allowed))]


def test_our_own_python_comes_first_then_the_newest_one_each():
    assert tried(">=3.11,<3.14", "3.11.7", "3.11.2", "3.13.0", "3.12.1")[:3] == ["3.11.7", "3.13.0", "3.12.1"]


def test_python_that_the_release_refuses_is_never_tried():
    assert "3.10.13" not in tried(">=3.11,<3.14", "3.10.13", "3.12.1")
    assert tried(">=3.11,<3.14", "3.10.13", "3.12.1")[0] == "3.12.1"


def test_one_python_that_uv_may_download_comes_last():
    assert tried(">=3.11,<3.14", "3.11.7") == ["3.11.7", "3.12"]
    assert tried(">=3.11,<3.14", "3.12.1") == ["3.12.1", "3.13"]
    assert tried(">=3.11,<3.14") == ["3.12"]


def test_nothing_fits_where_no_known_python_is_allowed():
    assert tried("<3.9", "3.11.7") == []


def test_tag_is_the_wheel_tag():
    assert [c.tag for c in candidates("3.12", "3.11.7")] == ["cp312", "cp311"]


def test_listing_of_uv_is_reduced_to_final_default_cpython():
    def entry(**change):
        return {"implementation": "cpython", "variant": "default", "version": "3.12.1", "path": "/usr/bin/python3.12", **change}

    listing = json.dumps(
        [
            entry(),
            entry(implementation="pypy"),
            entry(variant="freethreaded"),
            entry(version="3.16.0a2"),
            entry(path=None),
            entry(version="no"),
        ]
    )
    assert parse_python_list(listing) == (Candidate("3.12.1", "/usr/bin/python3.12"),)
