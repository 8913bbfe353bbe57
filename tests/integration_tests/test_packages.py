"""What packages are made of: every installed file belongs to one of them, the service's unit is valid and closed, what units and
images call exists. `make test-packages` installs real packages in fresh roots."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

COMPONENTS = ("runtime", "dev", "demo", "kernels")


def run(*command, **kwargs) -> subprocess.CompletedProcess:
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, **kwargs)


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


def test_every_installed_file_is_in_one_package(build_dir, tmp_path):
    """An install rule without a component would be in no package."""
    parts = {}
    for name in (*COMPONENTS, None):
        prefix = tmp_path / str(name) / "usr"  # DESTDIR, because the options of the service have a place of their own: /etc/default
        done = run("cmake", "--install", build_dir, "--prefix", "/usr", *(["--component", name] if name else []),
                   env=os.environ | {"DESTDIR": str(tmp_path / str(name))})
        assert done.returncode == 0, done.stderr
        parts[name] = files(prefix)
    together = set.union(*(parts[name] for name in COMPONENTS))
    assert parts[None] - together == set()
    assert sum(len(parts[name]) for name in COMPONENTS) == len(together)  # none is in two
    assert "lib/systemd/system/rocm-sd.service" in parts["runtime"] - parts[None]
    assert any(name.startswith("share/rocm-sd/models/demo/unet") for name in parts["demo"] - parts[None])
    assert not [name for name in parts["runtime"] if name.endswith((".hpp", ".h", ".cmake", ".pc", ".so"))]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze")
def test_the_unit_is_valid_and_closed(repository, tmp_path):
    unit = tmp_path / "rocm-sd.service"
    text = (repository / "packaging" / "systemd" / "rocm-sd.service").read_text()
    unit.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", text, flags=re.M))
    done = run("systemd-analyze", "verify", "--recursive-errors=no", unit)
    told = [line for line in done.stderr.splitlines() if "rocm-sd.service" in line]
    assert done.returncode == 0 and not told, done.stderr
    done = run("systemd-analyze", "security", "--offline=yes", "--no-pager", "--threshold=25", unit)
    assert done.returncode == 0, done.stdout[-400:] + done.stderr  # exposure at most 2.5 of 10


def test_what_packages_call_exists(repository, rocm_sd):
    packaging = repository / "packaging"
    known = set(re.findall(r"--[a-z][a-z-]+", rocm_sd("serve", "--help").stdout))
    image = (packaging / "docker" / "Dockerfile").read_text()
    compose = yaml.safe_load((packaging / "docker" / "compose.yaml").read_text())
    for text in ((packaging / "systemd" / "rocm-sd.default").read_text(), re.search(r'^CMD (\[.*)$', image, re.M)[1],
                 compose["services"]["rocm-sd"]["command"]):
        used = set(re.findall(r"--[a-z][a-z-]+", text))
        assert used and used <= known, used - known
    targets = set(re.findall(r"^FROM .* AS (\S+)$", image, re.M))
    assert {"cpu", "rocm", "cuda"} <= targets
    copied = set(re.findall(r"^COPY --from=(\S+)", image, re.M))
    assert copied <= targets
    for name in ("compose.rocm.yaml", "compose.cuda.yaml"):
        more = yaml.safe_load((packaging / "docker" / name).read_text())
        assert set(more["services"]) <= set(compose["services"])
    assert (packaging / "debian" / "conffiles").read_text() == "/etc/default/rocm-sd\n"
    for script in [*packaging.glob("*.sh"), *(packaging / "debian" / name for name in ("postinst", "prerm", "postrm"))]:
        assert script.stat().st_mode & 0o111 == 0o111, script
        assert run("sh" if script.suffix == "" else "bash", "-n", script).returncode == 0


def test_the_command_of_the_wheel(repository, tmp_path):
    """It becomes the program of the package beside it, with the package's kernels, and imports no PyTorch."""
    shutil.copytree(repository / "python" / "rocm_sd_program", tmp_path / "rocm_sd_program")
    package = tmp_path / "rocm_sd_ops"
    (package / "bin").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    command = [sys.executable, "-c", "import rocm_sd_program; rocm_sd_program.main()", "generate", "--model", "a b"]
    done = run(*command, cwd=tmp_path, env={"PATH": "/usr/bin:/bin"})
    assert done.returncode == 1 and "built without the program" in done.stderr
    program = package / "bin" / "rocm-sd"
    program.write_text('#!/bin/sh\nprintf "%s|" "$ROCM_SD_KERNELS" "$@"\n')
    program.chmod(0o755)
    done = run(*command, cwd=tmp_path, env={"PATH": "/usr/bin:/bin"})
    assert done.stdout == f"{package / 'lib'}|generate|--model|a b|", done.stderr
    scripts = (repository / "pyproject.toml").read_text()
    assert 'rocm-sd = "rocm_sd_program:main"' in scripts and '"python/rocm_sd_program"' in scripts
