"""The command line's files, streams and signals: outputs that cannot be written, links and pipes, a full disk, interruptions."""

from __future__ import annotations

import os
import resource
import shlex
import signal
import stat
import subprocess

import numpy as np
import pytest

from pictures import read_picture

FAST = ["--steps", "2", "-W", "64", "-H", "64", "--seed", "1"]


@pytest.fixture(scope="module")
def model(tiny_model):
    return tiny_model("sd15")


@pytest.mark.bad_input
@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.webp"])
def test_full_disk_keeps_no_broken_file(rocm_sd, model, tmp_path, name):
    """A limit of the file's size stands for a full disk: write() fails in the middle of the picture."""
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))

    (tmp_path / name).write_bytes(b"old")
    done = subprocess.run([rocm_sd.path, "generate", "--model", model, *FAST, "-o", tmp_path / name], preexec_fn=limit, restore_signals=False,
                          capture_output=True, text=True)
    assert done.returncode == 3 and f"{name}: cannot write" in done.stderr.splitlines()[-1], done.stderr
    assert [path.name for path in tmp_path.iterdir()] == [name] and (tmp_path / name).read_bytes() == b"old"


@pytest.mark.bad_input
def test_output_names_that_cannot_be(rocm_sd, model, tmp_path):
    for name in ("x" * 300 + ".png", "."):
        rocm_sd("generate", "--model", model, *FAST, "-o", tmp_path / name, code=2 if name == "." else 3)
    assert not list(tmp_path.iterdir())


@pytest.mark.bad_input
def test_standard_output_that_cannot_be_written(rocm_sd, model, tmp_path):
    for args in (["inspect", "--json", model], ["inspect", model], ["list", "samplers"], ["list", "schedules"], ["--help"], ["generate", "--help"],
                 ["--version"], ["devices"], ["tokenize", "a cat"], ["bench", "--model", "sd15", "--mode", "list", "--top", "1", "-W", "64", "-H", "64",
                                                                     "--device", "cpu", "--json", "-"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run([str(rocm_sd.path), *map(str, args)], stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 3 and "standard output: cannot write" in done.stderr, (args, done)
        early = subprocess.run(f"{shlex.join([str(rocm_sd.path), *map(str, args)])} | head -c 1", shell=True, capture_output=True, text=True)
        assert "error" not in early.stderr, (args, early)


@pytest.mark.bad_input
def test_outputs_are_looked_at_before_the_work(rocm_sd, model, tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "full.json").symlink_to("/dev/full")
    for option, path in (("--trace", tmp_path / "none" / "t.json"), ("--trace", tmp_path), ("-o", tmp_path / "file" / "a.png"), ("--trace", "/proc/t.json")):
        done = rocm_sd("generate", "--model", model, *FAST, "-o", tmp_path / "a.png", option, path, code=3)
        assert str(path).removesuffix("/a.png") in done.stderr and "sample" not in done.stderr and not (tmp_path / "a.png").exists()
    done = rocm_sd("generate", "--model", model, *FAST, "-o", tmp_path / "a.png", "--trace", tmp_path / "full.json", code=3)
    assert "full.json: cannot write: No space left" in done.stderr
    done = rocm_sd("bench", "--model", "sd15", "--mode", "list", "--top", "1", "-W", "64", "-H", "64", "--device", "cpu", "--json",
                   tmp_path / "full.json", code=3)
    assert "full.json: cannot write: No space left" in done.stderr
    assert (tmp_path / "full.json").is_symlink() and sorted(p.name for p in tmp_path.iterdir()) == ["a.png", "file", "full.json"]


def test_links_are_followed_and_fifos_written_to(rocm_sd, model, tmp_path):
    real = tmp_path / "real"
    real.mkdir()
    (real / "old.png").write_bytes(b"old")
    (tmp_path / "link.png").symlink_to("real/old.png")
    (tmp_path / "dangling.png").symlink_to("real/new.png")
    os.mkfifo(tmp_path / "fifo.png")
    for name in ("link.png", "dangling.png"):
        rocm_sd("generate", "--model", model, *FAST, "-o", tmp_path / name)
        assert (tmp_path / name).is_symlink()
    reader = subprocess.Popen(["cat", str(tmp_path / "fifo.png")], stdout=subprocess.PIPE)
    rocm_sd("generate", "--model", model, *FAST, "-o", tmp_path / "fifo.png", timeout=60)
    (tmp_path / "copy.png").write_bytes(reader.communicate(timeout=60)[0])
    pictures = [read_picture(path) for path in (real / "old.png", real / "new.png", tmp_path / "copy.png")]
    assert all(np.array_equal(pictures[0], other) for other in pictures[1:])
    assert stat.S_ISFIFO((tmp_path / "fifo.png").stat().st_mode)
    assert sorted(p.name for p in real.iterdir()) == ["new.png", "old.png"]


@pytest.mark.bad_input
def test_a_second_signal_ends_at_once(rocm_sd, model, tmp_path):
    process = rocm_sd.started(model, tmp_path, "sample")
    # Stopped, it cannot answer the first before it has the second; two of one kind would be told as one.
    for number in signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGCONT:
        process.send_signal(number)
    rest = process.stderr.read()
    assert process.wait(timeout=30) in (128 + signal.SIGINT, 128 + signal.SIGTERM)
    assert "cancelled" not in rest and list(tmp_path.iterdir()) == []


@pytest.mark.bad_input
def test_ctrl_c_while_loading(rocm_sd, model, tmp_path):
    process = rocm_sd.started(model, tmp_path, "load")
    process.send_signal(signal.SIGINT)
    rest = process.stderr.read()
    assert process.wait(timeout=30) == 6 and "cancelled" in rest
    assert rest.count('"sample"') <= 1 and list(tmp_path.iterdir()) == []


@pytest.mark.bad_input
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_signals_leave_no_file(rocm_sd, model, tmp_path, name):
    number = getattr(signal, name)
    before = signal.signal(number, signal.SIG_DFL)  # what `nohup make test` ignores, its programs would ignore, too
    try:
        process = rocm_sd.started(model, tmp_path, "sample")
    finally:
        signal.signal(number, before)
    process.send_signal(number)
    process.stderr.read()
    assert process.wait(timeout=30) == (6 if name == "SIGTERM" else -signal.SIGHUP)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.bad_input
def test_streams_and_folders_that_are_missing(rocm_sd, model, tmp_path):
    command = f"'{rocm_sd.path}' generate --model '{model}' --steps 1 -W 64 -H 64 -o '{tmp_path}/"
    for tail, codes in (("a.png' >&-", {0}), ("b.png' 2>&-", {0}), ("c.png' 2>&1 | head -1; exit ${PIPESTATUS[0]}", {0, 1})):
        done = subprocess.run(["bash", "-c", command + tail], capture_output=True, text=True)
        assert done.returncode in codes and "internal" not in done.stderr, (tail, done)
    bare = {key: value for key, value in os.environ.items() if key not in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")}
    for more in ({}, {"HOME": ""}, {"XDG_CACHE_HOME": "/proc/none", "XDG_CONFIG_HOME": "/dev/null"}):
        done = subprocess.run([rocm_sd.path, "generate", "--model", model, *FAST, "-o", tmp_path / "d.png"], env=bare | more, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
