"""The wheel: built, installed in a folder of its own, and the program of README.md run with it."""

import re
import runpy
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def said(*command, **options):
    done = subprocess.run([str(each) for each in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=240, **options)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Without GPU kernels, as where there is no nvcc; nothing is fetched."""
    folder = tmp_path_factory.mktemp("wheel")
    said(sys.executable, "-m", "pip", "wheel", ROOT, "--no-deps", "--no-build-isolation", "--no-index", "-w", folder,
         "-C", "cmake.define.MMOE_KERNELS=OFF", "-C", f"build-dir={folder / 'build'}")
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    said(sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", folder, wheel)
    return folder


def test_one_wheel_for_every_python_and_pytorch(wheel):
    assert re.fullmatch(r"megamoe-\d+\.\d+\.\d+-py3-none-linux_\w+\.whl", wheel.name)
    names = zipfile.ZipFile(wheel).namelist()
    assert [name for name in names if ".so" in name] == ["megamoe/libmegamoe.so"]
    sources = {f"megamoe/{path.relative_to(ROOT / 'python/megamoe')}" for path in ROOT.glob("python/megamoe/**/*.py")}
    assert sources == {name for name in names if name.endswith(".py")}


def test_the_library_links_to_no_pytorch(installed):
    needed = said("ldd", installed / "megamoe/libmegamoe.so")
    assert "openblas" in needed and not re.search("torch|c10|python", needed)


def test_the_program_of_the_readme(installed, tmp_path, monkeypatch, capsys):
    program = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL).group(1)
    (tmp_path / "first.py").write_text(program, encoding="utf-8")
    monkeypatch.delenv("MEGAMOE_LIBRARY")
    monkeypatch.syspath_prepend(installed)
    assert "megamoe" not in sys.modules
    runpy.run_path(str(tmp_path / "first.py"))
    assert Path(sys.modules["megamoe"].__file__).is_relative_to(installed)
    assert capsys.readouterr().out == "y is there, dx (4, 64)\n"
