import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from packaging.version import Version

from runners.errors import UsageError
from runners.spec import EngineSpec, is_fork_build

releases = st.builds(
    lambda numbers, post: ".".join(map(str, numbers)) + (f".post{post}" if post is not None else ""),
    st.lists(st.integers(0, 99), min_size=2, max_size=4),
    st.none() | st.integers(0, 9),
)
names = st.from_regex(r"[a-z][a-z0-9]{0,10}(-[a-z0-9]{1,5})?", fullmatch=True)
images = st.from_regex(r"[a-z0-9]{1,10}(/[a-z0-9-]{1,10})?(:[A-Za-z0-9._-]{1,10})?(@sha256:[0-9a-f]{8})?", fullmatch=True)
urls = st.builds(
    lambda scheme, host, port: f"{scheme}://{host}:{port}",
    st.sampled_from(["http", "https"]),
    st.sampled_from(["127.0.0.1", "spark-1.local", "[::1]"]),
    st.integers(1, 65535),
)
GIVEN = ("venv", "/opt/engines/vllm")
origins = st.one_of(
    st.just(("venv", "")),
    st.just(GIVEN),
    st.tuples(st.just("docker"), images),
    st.tuples(st.just("endpoint"), urls),
)


@given(names, st.none() | releases, origins)
def test_text_of_a_spec_reads_back_as_the_same_spec(name, version, origin):
    assume(version is not None or origin != GIVEN)
    spec = EngineSpec(name, None if version is None else str(Version(version)), *origin)
    assert EngineSpec.parse(str(spec)) == spec


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_as_usage(text):
    try:
        spec = EngineSpec.parse(text)
    except UsageError as error:
        assert error.exit_code == 2
    else:
        assert EngineSpec.parse(str(spec)) == spec


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("vllm", EngineSpec("vllm")),
        ("vLLM == 0.32.0", EngineSpec("vllm", "0.32.0")),
        ("vllm==0.32.0@venv", EngineSpec("vllm", "0.32.0")),
        ("vllm==0.32.0@venv:/opt/vllm", EngineSpec("vllm", "0.32.0", "venv", "/opt/vllm")),
        ("sglang==0.5.15-post1", EngineSpec("sglang", "0.5.15.post1")),
        ("vllm==0.33.0rc1", EngineSpec("vllm", "0.33.0rc1")),
        ("vllm@docker:repo.local:5000/vllm:v1@sha256:ab", EngineSpec("vllm", None, "docker", "repo.local:5000/vllm:v1@sha256:ab")),
        ("vllm==0.1.dev21830+g0a1b2c3@docker:vllm-node", EngineSpec("vllm", "0.1.dev21830+g0a1b2c3", "docker", "vllm-node")),
        ("vllm==0.28.0@docker", EngineSpec("vllm", "0.28.0", "docker", "vllm/vllm-openai:v0.28.0")),
        ("llamacpp==b6123@endpoint:http://127.0.0.1:8080", EngineSpec("llamacpp", "b6123", "endpoint", "http://127.0.0.1:8080")),
        ("sglang@endpoint:http://127.0.0.1:30000", EngineSpec("sglang", None, "endpoint", "http://127.0.0.1:30000")),
    ],
)
def test_every_form_is_read(text, expected):
    assert EngineSpec.parse(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "==0.32.0",
        "vllm==",
        "vllm==latest",
        "llamacpp==b6123-0c50a2b4@endpoint:http://127.0.0.1:8080",
        "vllm=0.32.0",
        "vllm==0.32.0@",
        "vllm==0.32.0@conda",
        "vllm@docker:",
        "vllm@docker:--privileged",
        "vllm@docker:image with space",
        "vllm@endpoint:127.0.0.1:8000",
        "vllm@endpoint:ftp://host",
        "vllm@endpoint:http://host:99999",
        "vllm@endpoint:http://host/\nx",
        "v" * 2000,
    ],
)
def test_malformed_spec_is_refused_with_the_form_to_write(text):
    with pytest.raises(UsageError, match="Write NAME==VERSION"):
        EngineSpec.parse(text)


def test_endpoint_with_credentials_is_refused_without_showing_them():
    with pytest.raises(UsageError) as refused:
        EngineSpec.parse("vllm@endpoint:http://user:sekret@host:8000")
    assert "sekret" not in str(refused.value)


@pytest.mark.parametrize("version", ["0.1.dev21830+g0a1b2c3", "0.32.0+cu130", "0.33.0.dev5"])
def test_fork_build_needs_an_origin_and_has_no_place_among_releases(version):
    with pytest.raises(UsageError, match="@venv:FOLDER, @docker:IMAGE or @endpoint:URL"):
        EngineSpec.parse(f"vllm=={version}")
    assert is_fork_build(version)
    assert EngineSpec.parse(f"vllm=={version}@docker:image").release is None
    assert EngineSpec.parse(f"vllm=={version}@venv:/opt/vllm").release is None


@pytest.mark.parametrize("text", ["vllm@docker", "vllm==0.1.dev21830+g0a1b2c3@docker", "vllm==0.0.1@docker", "foo==1@docker"])
def test_without_an_image_and_without_a_known_default_one_must_be_named(text):
    with pytest.raises(UsageError, match="@docker:IMAGE"):
        EngineSpec.parse(text)


def test_a_build_number_has_no_place_among_releases():
    assert EngineSpec.parse("llamacpp==b6123@endpoint:http://127.0.0.1:8080").release is None


def test_release_orders_by_version_and_not_by_text():
    specs = [EngineSpec.parse(f"vllm=={v}") for v in ("0.9.2", "0.32.0", "0.10.2")]
    assert [s.version for s in sorted(specs, key=lambda s: s.release)] == ["0.9.2", "0.10.2", "0.32.0"]


def test_a_build_number_without_an_endpoint_says_how_to_write_it() -> None:
    with pytest.raises(UsageError) as refused:
        EngineSpec.parse("llamacpp==b6123@docker:some/image:tag")
    assert "b6123" in refused.value.message
    assert refused.value.todo == "Write llamacpp==b6123@endpoint:URL."
