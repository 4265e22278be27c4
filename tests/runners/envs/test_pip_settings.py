from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.envs.pip_settings import PipSettings, for_uv, parse_pip_config, read_pip_settings

LISTING = (Path(__file__).parents[2] / "data" / "envs" / "pip-config-list.txt").read_text(encoding="utf-8")


def everywhere(path):
    return True


def test_recorded_configuration_is_read_with_pips_precedence():
    settings = read_pip_settings(lambda: LISTING)
    assert settings == PipSettings(
        index_url="https://user:sekret@mirror.example/simple",
        extra_index_url=("file:///mnt/one/simple", "file:///mnt/two/simple"),
        find_links=("/mnt/a", "/mnt/b"),
        constraint=("/mnt/constraints.txt",),
        trusted_host=("mirror.example", "other.example"),
        cert="/etc/ssl/certs/ca-certificates.crt",
        proxy="proxy.example:3128",
        timeout="180",
    )


@pytest.mark.parametrize("order", [0, 1, 2])
def test_environment_beats_install_section_beats_global_in_any_order(order):
    lines = ["global.find-links='/g'", "install.find-links='/i'", ":env:.find-links='/e'"]
    shuffled = "\n".join(lines[order:] + lines[:order])
    assert parse_pip_config(shuffled).find_links == ("/e",)
    assert parse_pip_config("\n".join(lines[:2][::-1])).find_links == ("/i",)


def test_sections_of_other_pip_commands_do_not_count():
    assert parse_pip_config("download.no-index='true'\nwheel.index-url='https://x'\n") == PipSettings()


@pytest.mark.parametrize("text", ["", "no equals sign", "=", "global.=", "global.timeout", "[global]", "global.timeout='unclosed"])
def test_lines_that_are_no_settings_are_passed_over(text):
    assert parse_pip_config(text).index_url is None


@given(st.lists(st.text(alphabet=st.characters(blacklist_categories=("Cs", "Zs", "Zl", "Zp", "Cc")), min_size=1), min_size=1))
def test_any_list_value_survives_pips_quoting(values):
    listing = f"global.extra-index-url={chr(10).join(values)!r}"
    assert parse_pip_config(listing).extra_index_url == tuple(values)


def test_uv_gets_the_same_settings_under_its_own_names():
    uv = for_uv(read_pip_settings(lambda: LISTING), {}, exists=everywhere)
    assert uv.environment == {
        "UV_DEFAULT_INDEX": "https://user:sekret@mirror.example/simple",
        "UV_INDEX": "file:///mnt/one/simple file:///mnt/two/simple",
        "UV_FIND_LINKS": "/mnt/a,/mnt/b",
        "UV_CONSTRAINT": "/mnt/constraints.txt",
        "UV_INSECURE_HOST": "mirror.example other.example",
        "UV_HTTP_TIMEOUT": "180",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt",
        "HTTPS_PROXY": "http://proxy.example:3128",
        "HTTP_PROXY": "http://proxy.example:3128",
    }
    assert uv.options == ()


@pytest.mark.parametrize(
    ("own", "left_out"),
    [
        ("UV_DEFAULT_INDEX", "UV_DEFAULT_INDEX"),
        ("UV_INDEX_URL", "UV_DEFAULT_INDEX"),
        ("UV_EXTRA_INDEX_URL", "UV_INDEX"),
        ("UV_FIND_LINKS", "UV_FIND_LINKS"),
        ("UV_INDEX_STRATEGY", "UV_INDEX_STRATEGY"),
        ("SSL_CERT_FILE", "SSL_CERT_FILE"),
        ("https_proxy", "HTTPS_PROXY"),
        ("ALL_PROXY", "HTTP_PROXY"),
    ],
)
def test_a_variable_the_user_has_set_is_never_replaced(own, left_out):
    settings = read_pip_settings(lambda: LISTING)
    assert left_out in for_uv(settings, {own: ""}, exists=everywhere).environment
    assert left_out not in for_uv(settings, {own: "mine"}, exists=everywhere).environment


def test_missing_find_links_folder_is_left_out_as_pip_does():
    settings = PipSettings(find_links=("/mnt/gone", "https://wheels.example/", "/mnt/here"))
    uv = for_uv(settings, {}, exists=lambda path: path == Path("/mnt/here"))
    assert uv.environment["UV_FIND_LINKS"] == "https://wheels.example/,/mnt/here"


def test_relative_and_home_folders_become_absolute_since_uv_runs_elsewhere():
    uv = for_uv(PipSettings(find_links=("~/wheels", "wheels")), {}, exists=everywhere)
    assert uv.environment["UV_FIND_LINKS"] == f"{Path.home() / 'wheels'},{Path.cwd() / 'wheels'}"


def test_no_index_becomes_an_option_because_uv_has_no_variable_for_it():
    settings = parse_pip_config("global.no-index='yes'\n")
    assert for_uv(settings, {}).options == ("--no-index",)
    assert for_uv(PipSettings(), {}).options == ()


@pytest.mark.parametrize(("timeout", "expected"), [("40", "40"), ("0.2", "1"), ("soon", None), ("inf", None)])
def test_timeout_is_whole_seconds_or_left_to_uv(timeout, expected):
    assert for_uv(PipSettings(timeout=timeout), {}).environment.get("UV_HTTP_TIMEOUT") == expected
