import subprocess
import sys

import pytest

from runners.envs.stubs import write_stub


def in_python(folder, code):
    return subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(folder)!r}); {code}"],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "code",
    [
        "from torchvision.io import decode_jpeg",
        "import torchvision.transforms.v2.functional as F; F.resize",
        "from torchvision.transforms import InterpolationMode; {InterpolationMode.NEAREST_EXACT: 1, InterpolationMode.BILINEAR: 2}",
        "from torchvision import transforms; transforms.functional",
        "import torchvision; assert torchvision.__version__ == '0.0.0'",
        "from torchvision.io import VideoReader\nclass Mine(VideoReader): pass",
    ],
)
def test_stand_in_can_be_imported_and_named(tmp_path, code):
    write_stub(tmp_path, "torchvision", ["io", "transforms.v2.functional"])
    done = in_python(tmp_path, code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("call", ["io.decode_jpeg(b'')", "transforms.v2.functional.resize(1)", "ops.nms()", "io.ImageReadMode.RGB()"])
def test_stand_in_fails_with_its_name_when_it_is_called(tmp_path, call):
    write_stub(tmp_path, "torchvision", ["io", "transforms.v2.functional"])
    done = in_python(tmp_path, f"import torchvision.io, torchvision.transforms.v2.functional; torchvision.{call}")
    assert f"RuntimeError: torchvision.{call.partition('(')[0]} is a stand-in" in done.stderr


def test_missing_dunder_is_an_ordinary_attribute_error(tmp_path):
    write_stub(tmp_path, "sgl_kernel")
    assert in_python(tmp_path, "import sgl_kernel; assert not hasattr(sgl_kernel, '__cuda__')").returncode == 0


def test_stand_in_never_hides_a_real_package(tmp_path):
    (tmp_path / "torchvision").mkdir()
    with pytest.raises(FileExistsError):
        write_stub(tmp_path, "torchvision")


@pytest.mark.parametrize("name", ["../outside", "a/b", "", "a-b"])
def test_name_that_is_no_module_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match="not a module name"):
        write_stub(tmp_path, name)
    assert list(tmp_path.iterdir()) == []
