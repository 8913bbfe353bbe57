"""What `cmake --install` puts in place is enough for a stranger: examples/ builds against it and draws."""

from __future__ import annotations

import os
import subprocess

import pytest

from pictures import read_parameters, read_picture


def run(*command, **kwargs) -> subprocess.CompletedProcess:
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, **kwargs)


@pytest.fixture(scope="module")
def prefix(build_dir, tmp_path_factory):
    path = tmp_path_factory.mktemp("prefix")
    done = run("cmake", "--install", build_dir, "--prefix", path)
    assert done.returncode == 0, done.stdout + done.stderr
    return path


@pytest.fixture(scope="module")
def examples(repository, prefix, tmp_path_factory):
    """Folder with the examples, built by find_package(rocm_sd) alone."""
    build = tmp_path_factory.mktemp("examples")
    for command in (["cmake", "-S", repository / "examples", "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}"],
                    ["cmake", "--build", build]):
        done = run(*command)
        assert done.returncode == 0, done.stdout + done.stderr
    return build


def library_folder(prefix):
    return next(prefix.glob("lib*/**/librocm_sd.so")).parent


@pytest.mark.parametrize("program", ["generate_c", "generate_cpp"])
def test_examples_draw(examples, tiny_model, tmp_path, program):
    done = run(examples / program, tiny_model("sd15"), "a red cat", tmp_path / "a.png")
    assert done.returncode == 0, done.stderr
    assert read_picture(tmp_path / "a.png").std() > 5
    assert read_parameters(tmp_path / "a.png").startswith("a red cat\n")


@pytest.mark.parametrize("program", ["generate_c", "generate_cpp"])
def test_errors_cross_the_library(examples, tmp_path, program):
    """An exception thrown inside the library is caught by its public type, with its exit code."""
    done = run(examples / program, tmp_path / "missing", "a red cat", tmp_path / "a.png")
    assert done.returncode == 3, done.stderr
    assert done.stderr.startswith("error: ") and "missing" in done.stderr
    assert not (tmp_path / "a.png").exists()


def test_pkg_config(repository, prefix, tmp_path):
    env = os.environ | {"PKG_CONFIG_PATH": str(library_folder(prefix) / "pkgconfig")}
    flags = run("pkg-config", "--cflags", "--libs", "rocm_sd", env=env)
    assert flags.returncode == 0, flags.stderr
    done = run("cc", repository / "examples" / "generate.c", *flags.stdout.split(), "-o", tmp_path / "generate")
    assert done.returncode == 0, done.stderr
    done = run(tmp_path / "generate", env=env | {"LD_LIBRARY_PATH": str(library_folder(prefix))})
    assert done.returncode == 2 and done.stderr.startswith("usage:")


def test_installed_program_runs(prefix):
    done = run(prefix / "bin" / "rocm-sd", "--version")
    assert done.returncode == 0 and done.stdout.strip()


def test_only_public_names_are_exported(prefix):
    symbols = run("nm", "-D", "--defined-only", "--demangle", library_folder(prefix) / "librocm_sd.so").stdout.splitlines()
    names = [line.split(" ", 2)[2] for line in symbols]
    assert any(name.startswith("rocm_sd_create") for name in names)
    strangers = [name for name in names if "rocm_sd" not in name]
    assert not strangers, strangers[:10]
