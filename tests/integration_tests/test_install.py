"""What `cmake --install` puts in place is enough for a stranger: moved elsewhere, read-only, without the source tree and the build
folder, as another user. examples/ builds against it and draws."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from pictures import read_parameters, read_picture


def run(*command, **kwargs) -> subprocess.CompletedProcess:
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, **kwargs)


STRANGER = 65534  # nobody


@pytest.fixture(scope="module")
def room():
    """A folder that another user may enter; pytest's own are their owner's alone."""
    with tempfile.TemporaryDirectory(prefix="rocm-sd-install-") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)
        run("chmod", "-R", "u+w", folder)


@pytest.fixture(scope="module")
def prefix(build_dir, room):
    """The installed prefix: moved after the installation, then read-only."""
    done = run("cmake", "--install", build_dir, "--prefix", room / "first place")
    assert done.returncode == 0, done.stdout + done.stderr
    path = (room / "first place").rename(room / "prefix")
    run("chmod", "-R", "a-w,a+rX", path)
    return path


@pytest.fixture(scope="module")
def alone(repository, build_dir, prefix, room):
    """alone(program, args...): runs it as nobody where we are root, with no variable of ours, the source tree and the build folder
    hidden where mount namespaces are allowed; else as it is (test_nothing_installed_names_this_machine holds everywhere)."""
    out = room / "out"
    out.mkdir()
    out.chmod(0o777)
    root = os.geteuid() == 0
    places = [repository] if repository in build_dir.parents else [repository, build_dir]
    hide = "; ".join(f'mount -t tmpfs tmpfs "{place}"' for place in places if place not in prefix.parents) or ":"
    namespace = ["unshare", "--mount"] if root else ["unshare", "--map-root-user", "--mount"]
    hidden = shutil.which("unshare") and run(*namespace, "sh", "-c", f'{hide}; ls "{repository}"/share').returncode != 0
    hidden = hidden and run(*namespace, "true").returncode == 0
    become = ["setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups"] if root else []

    def call(program, *args):
        command = [*become, str(program), *map(str, args)]
        if hidden:
            command = [*namespace, "sh", "-c", f'set -e; {hide}; exec "$@"', "sh", *command]
        env = {"PATH": "/usr/bin:/bin", "OMP_WAIT_POLICY": "passive", "HOME": "/nonexistent"}
        return run(*command, cwd=out, env=env)

    call.out = out
    return call


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


def test_installed_program_runs(prefix, alone):
    done = alone(prefix / "bin" / "rocm-sd", "--version")
    assert done.returncode == 0 and done.stdout.strip(), done.stderr


@pytest.mark.parametrize("layout", ["folder", "single"])
def test_a_stranger_draws_labelled_sheets(prefix, alone, room, tiny_model, layout):
    """Vocabulary, font and tables come from the prefix alone; a single file has no vocabulary of its own."""
    model = room / f"model-{layout}{'.safetensors' if layout == 'single' else ''}"
    source = tiny_model("sd15", layout=layout)
    shutil.copytree(source, model) if source.is_dir() else shutil.copy(source, model)
    run("chmod", "-R", "a+rX", model)
    (alone.out / "prompts.txt").write_text("a red cat\na blue dog\n")
    sheet = alone.out / f"{layout}.png"
    done = alone(prefix / "bin" / "rocm-sd", "generate", "--model", model, "--prompts-file", "prompts.txt", "--grid", "2x1",
                 "--grid-labels", "--steps", 1, "-W", 64, "-H", 64, "-o", sheet)
    assert done.returncode == 0, done.stderr
    rows, columns, _ = read_picture(sheet).shape
    assert columns >= 128 and rows > 64 + 8  # two side by side with margins, a label below each


def test_a_stranger_links_the_library(examples, prefix, alone, room, tiny_model):
    """The library finds its files beside itself, also below a program of another place."""
    model = room / "model-of-library.safetensors"
    shutil.copy(tiny_model("sd15", layout="single"), model)
    model.chmod(0o644)
    program = room / "generate_c"
    shutil.copy(examples / "generate_c", program)
    program.chmod(0o755)
    done = alone("env", f"LD_LIBRARY_PATH={library_folder(prefix)}", program, model, "a red cat", alone.out / "c.png")
    assert done.returncode == 0, done.stderr
    assert read_picture(alone.out / "c.png").std() > 0


def test_everything_is_installed(prefix, repository, build_dir):
    share = prefix / "share" / "rocm-sd"
    for folder in ("vocab", "font", "counts", "tuning"):
        wanted = {p.relative_to(repository / "share") for p in (repository / "share" / folder).rglob("*") if p.is_file()}
        assert wanted and wanted <= {p.relative_to(share) for p in share.rglob("*")}, folder
    assert "MIT" in (prefix / "share" / "doc" / "rocm-sd" / "LICENSE").read_text()
    notice = (prefix / "share" / "doc" / "rocm-sd" / "NOTICE").read_text()
    for name in ("CLIP", "misc-fixed", "Noto Color Emoji", "CLDR", "torchsde", "SeedSequence", "k-diffusion"):
        assert name in notice
    built = {path.name for path in (build_dir / "lib").glob("kernels_*.rsk")}
    assert built == {path.name for path in prefix.rglob("kernels_*.rsk")}


def test_nothing_installed_names_this_machine(prefix, repository, build_dir):
    """No path of the source tree, the build folder or the first place of the prefix is in any installed file, as text or link."""
    strangers = [str(repository), str(build_dir), str(prefix.parent / "first place")]
    found = []
    for path in prefix.rglob("*"):
        if path.is_symlink():
            assert not os.readlink(path).startswith("/"), path
        elif path.is_file():
            content = path.read_bytes()
            found += [f"{path.relative_to(prefix)}: {name}" for name in strangers if name.encode() in content]
    assert not found, found


def test_bundles_hold_what_programs_read(repository, build_dir, alone, room, rocm_sd, tiny_model):
    """tools/pack/bundle_programs.sh: the folder that travels to a machine that cannot build."""
    bundle = room / "bundle"
    done = run(repository / "tools" / "pack" / "bundle_programs.sh", bundle, build_dir, rocm_sd.path)
    assert done.returncode == 0, done.stderr
    run("chmod", "-R", "a+rX", bundle)
    model = room / "model-of-bundle.safetensors"
    shutil.copy(tiny_model("sd15", layout="single"), model)
    model.chmod(0o644)
    done = alone(bundle / "run", "rocm-sd", "generate", "--model", model, "--prompt", "a cat", "--steps", 1, "-W", 64, "-H", 64,
                 "-o", alone.out / "bundle.png")
    assert done.returncode == 0, done.stderr
    assert (bundle / "NOTICE").is_file() and (bundle / "LICENSE").is_file()
    assert {p.name for p in (build_dir / "lib").glob("kernels_*.rsk")} == {p.name for p in (bundle / "lib" / "rocm-sd").iterdir()}


def test_only_public_names_are_exported(prefix):
    symbols = run("nm", "-D", "--defined-only", "--demangle", library_folder(prefix) / "librocm_sd.so").stdout.splitlines()
    names = [line.split(" ", 2)[2] for line in symbols]
    assert any(name.startswith("rocm_sd_create") for name in names)
    strangers = [name for name in names if "rocm_sd" not in name]
    assert not strangers, strangers[:10]
