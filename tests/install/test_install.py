"""Installs the library into an empty folder, moves it, and builds a user's program against it in every promised way.

CMake passes in the environment: MMOE_BUILD and MMOE_SOURCE, the two folders, MMOE_VERSION, and CC, the compiler.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

BUILD = Path(os.environ["MMOE_BUILD"])
SOURCE = Path(os.environ["MMOE_SOURCE"])
CC = os.environ["CC"]
PROGRAM = SOURCE / "tests/install/ten_lines.c"
VERSION = os.environ["MMOE_VERSION"]
EXPECTED = f"megamoe {VERSION}, 1 rank\n"


def output(*command, **options):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=120, **options)
    assert done.returncode == 0, f"{command}:\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The prefix of an installed copy. Installed under DESTDIR, then moved: nothing inside may know where it was."""
    folder = tmp_path_factory.mktemp("install")
    output("cmake", "--install", BUILD, "--prefix", "/usr", env=os.environ | {"DESTDIR": str(folder / "staged")})
    prefix = folder / "moved"
    shutil.move(folder / "staged/usr", prefix)
    return prefix


@pytest.fixture
def library_folder(installed):
    return next(installed.rglob("libmegamoe.a")).parent


@pytest.fixture
def pkg_config(library_folder):
    def run(*arguments):
        path = {"PKG_CONFIG_PATH": str(library_folder / "pkgconfig")}
        return output("pkg-config", *arguments, "megamoe", env=os.environ | path).split()

    return run


def test_pkg_config_shared(pkg_config, library_folder, tmp_path):
    output(CC, PROGRAM, *pkg_config("--cflags", "--libs"), "-o", tmp_path / "program")
    environment = os.environ | {"LD_LIBRARY_PATH": str(library_folder)}
    assert output(tmp_path / "program", env=environment) == EXPECTED
    assert "libmegamoe.so.0" in output("ldd", tmp_path / "program", env=environment)


def test_pkg_config_static(pkg_config, tmp_path):
    """Fully static: every library that the archive needs is named by `pkg-config --static`."""
    output(CC, "-static", PROGRAM, *pkg_config("--static", "--cflags", "--libs"), "-o", tmp_path / "program")
    assert output(tmp_path / "program") == EXPECTED


def test_cmake_package(installed, tmp_path):
    output("cmake", "-S", SOURCE / "tests/install/consumer", "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={installed}",
           f"-DCMAKE_C_COMPILER={CC}")
    output("cmake", "--build", tmp_path)
    assert output(tmp_path / "with_shared") == EXPECTED
    assert output(tmp_path / "with_static") == EXPECTED
    assert "libmegamoe" not in output("ldd", tmp_path / "with_static")


def test_shared_library_exports_the_public_names_alone(library_folder):
    names = [line.split()[-1] for line in output("nm", "-D", "--defined-only", library_folder / "libmegamoe.so")
             .splitlines()]
    assert names and [name for name in names if not name.startswith("mmoe_")] == []


def test_every_function_of_the_header_is_exported(installed, library_folder):
    exported = output("nm", "-D", "--defined-only", library_folder / "libmegamoe.so")
    text = (installed / "include/megamoe.h").read_text()
    declared = [line.split("(")[0].split()[-1].lstrip("*") for line in text.splitlines()
                if line.startswith("MMOE_API") and "(" in line]
    assert len(declared) > 30
    assert [name for name in declared if f" {name}\n" not in exported] == []


def test_static_library_defines_no_foreign_name(library_folder):
    """A program that links the archive meets only names that begin with mm_ or mmoe_."""
    symbols = output("nm", "-g", "--defined-only", library_folder / "libmegamoe.a").splitlines()
    names = [line.split()[-1] for line in symbols if len(line.split()) == 3]
    assert names and [name for name in names if not name.startswith(("mm_", "mmoe_"))] == []


def test_no_build_path_is_installed(installed):
    """Files that other builds read name neither the source nor the build folder."""
    texts = [path for path in installed.rglob("*") if path.suffix in (".cmake", ".pc", ".h", ".1")]
    assert any(path.suffix == ".cmake" for path in texts) and any(path.suffix == ".pc" for path in texts)
    for path in texts:
        text = path.read_text()
        assert str(SOURCE) not in text and str(BUILD) not in text, path


def test_command_manual_and_completion_are_installed(installed):
    assert VERSION in output(installed / "bin/megamoe", "--version")
    assert list(installed.rglob("megamoe.1*")) and list(installed.rglob("bash-completion/completions/megamoe"))


@pytest.mark.parametrize("compiler, standard", [(CC, "c11"), ("clang", "c11"), ("clang++", "c++11")])
def test_header_compiles_alone(installed, compiler, standard):
    language = "c++" if "+" in standard else "c"
    output(compiler, f"-std={standard}", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-x", language,
           installed / "include/megamoe.h")


def test_readme_example(pkg_config, library_folder, tmp_path):
    """The program shown in README.md builds as printed there and runs."""
    text = (SOURCE / "README.md").read_text()
    (tmp_path / "example.c").write_text(text.split("```c\n")[1].split("```")[0])
    output(CC, "-Wall", "-Wextra", "-Werror", tmp_path / "example.c", *pkg_config("--cflags", "--libs"), "-o",
           tmp_path / "example")
    environment = os.environ | {"LD_LIBRARY_PATH": str(library_folder)}
    assert output(tmp_path / "example", env=environment) != ""
