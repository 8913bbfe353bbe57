"""Many pictures in one run: files of prompts and options, choices in prompts, folders of inputs, and journals that survive kill -9."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time

import numpy as np
import pytest
from PIL import Image

from pictures import read_parameters, read_picture

FAST = ["--steps", "1", "-W", "64", "-H", "64"]
# Drawn by hand with 50; a run of the tests kills fewer times.
KILLS = int(os.environ.get("ROCM_SD_TEST_KILLS", "4"))


@pytest.fixture(scope="module")
def model(tiny_model):
    return tiny_model("sd15")


def prompts_of(folder) -> list[str]:
    return [read_parameters(path).split("\n")[0] for path in sorted(folder.glob("*.png"))]


def test_a_file_of_options(rocm_sd, model, tmp_path):
    """JSONL: any option a line, lists for those that repeat, flags; the same pictures as from the command line."""
    lines = [{"prompt": "a cat", "seed": 3, "steps": 2}, {"prompt": "a dog", "negative_prompt": "blurry", "cfg-scale": 3.5, "clip_skip": 2, "batch": 2},
             {"image-prompt": ["a", "b"], "plain-prompt": True, "keep-latents": False}]
    (tmp_path / "jobs.jsonl").write_text("# a comment\n" + "\n".join(map(json.dumps, lines)))
    rocm_sd("generate", "-m", model, *FAST, "-s", "9", "--prompts-file", tmp_path / "jobs.jsonl", "-o", tmp_path / "{index}.png")
    assert sorted(path.name for path in tmp_path.glob("*.png")) == ["1.png", "2.png", "3.png", "4.png", "5.png"]
    assert prompts_of(tmp_path) == ["a cat", "a dog", "a dog", "a", "b"]
    rocm_sd("generate", "-m", model, *FAST, "-s", "9", "-p", "a dog", "-n", "blurry", "--cfg-scale", "3.5", "--clip-skip", "2", "--batch", "2",
            "-o", tmp_path / "x{index}.png")
    for i in (1, 2):
        assert (read_picture(tmp_path / f"x{i}.png") == read_picture(tmp_path / f"{i + 1}.png")).all()


@pytest.mark.bad_input
def test_files_of_options_that_cannot_be(rocm_sd, model, tmp_path):
    path = tmp_path / "jobs.jsonl"
    for text, message in (("[]", "line 1: expected a JSON object"), ('{"prompt": "a"}\n{', "line 2"), ('{"prompt": {"a": 1}}', "expected a text"),
                          ('{"nonsense": 1}', "nonsense"), ('{"steps": "many"}', "steps: expected"), ('{"model": "x"}', "model"), ('{"prompt": null}', "expected a text")):
        path.write_text(text)
        done = rocm_sd("generate", "-m", model, *FAST, "--prompts-file", path, "-o", tmp_path / "a.png", code=None)
        assert done.returncode in (2, 3) and message in done.stderr, (text, done.stderr)
    assert not (tmp_path / "a.png").exists()


def test_choices_follow_the_seed(rocm_sd, model, tmp_path):
    (tmp_path / "animal.txt").write_text("cat\ndog\nowl\n")
    args = ["generate", "-m", model, *FAST, "-p", "a {red|blue|grey|green} __animal__", "--wildcard-dir", tmp_path, "-s", "5", "--batch", "2", "--repeat", "3"]
    for name in ("one", "two"):
        rocm_sd(*args, "-o", tmp_path / name / "{index}-{seed}.png")
    one = prompts_of(tmp_path / "one")
    assert one == prompts_of(tmp_path / "two") and len(set(one)) > 2 and all("{" not in prompt and "__" not in prompt for prompt in one), one
    # A picture's prompt is that of its seed, in a batch or alone, and its receipt has it.
    rocm_sd("generate", "-m", model, *FAST, "-p", "a {red|blue|grey|green} __animal__", "--wildcard-dir", tmp_path, "-s", "8", "-o", tmp_path / "alone.png")
    assert read_parameters(tmp_path / "alone.png").split("\n")[0] == one[3]
    receipt = json.loads(Image.open(tmp_path / "one" / "4-8.png").text["rocm-sd"])
    assert [value for name, value in receipt["options"] if name == "image-prompt"] == one[2:4]
    assert "every byte of it" in rocm_sd("reproduce", "-q", tmp_path / "one" / "4-8.png").stdout
    # Off unless asked for.
    rocm_sd("generate", "-m", model, *FAST, "-p", "a {red|blue} cat", "-o", tmp_path / "plain.png")
    assert read_parameters(tmp_path / "plain.png").startswith("a {red|blue} cat\n")
    for prompt, message in (("{a", "opening brace"), ("__none__", "none.txt")):
        assert message in rocm_sd("generate", "-m", model, *FAST, "-p", prompt, "--wildcard-dir", tmp_path, "-o", tmp_path / "b.png", code=2).stderr


def test_a_folder_of_inputs(rocm_sd, model, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for name, value in (("b.png", 60), ("a.jpg", 120), ("c.webp", 200)):
        Image.fromarray(np.full((64, 64, 3), value, np.uint8)).save(folder / name)
    (folder / "notes.txt").write_text("no picture")
    args = ["generate", "-m", model, *FAST, "--steps", "2", "-p", "a cat", "-s", "1", "--strength", "0.5"]
    done = rocm_sd(*args, "--init-image", folder, "-o", tmp_path / "{input}-{index}.png")
    assert [os.path.basename(line) for line in done.stdout.splitlines()] == ["a-1.png", "b-2.png", "c-3.png"] and "no effect" not in done.stderr
    rocm_sd(*args, "--init-image", folder / "c.webp", "-o", tmp_path / "c.png")
    assert (read_picture(tmp_path / "c.png") == read_picture(tmp_path / "c-3.png")).all()
    (tmp_path / "none").mkdir()
    assert "no pictures" in rocm_sd(*args, "--init-image", tmp_path / "none", "-o", tmp_path / "d.png", code=3).stderr


def files_below(folder) -> dict[str, bytes]:
    return {path.name: np.asarray(Image.open(path)).tobytes() for path in folder.glob("*.png")}


def test_a_run_survives_kill(rocm_sd, model, tmp_path):
    """Killed at random moments and begun again, it has the pictures of a run that nobody killed: none twice, none lost, none broken."""
    (tmp_path / "prompts.txt").write_text("\n".join(f"a {{red|blue}} cat {i}" for i in range(3)))

    command = ["generate", "-m", str(model), *FAST, "--prompts-file", str(tmp_path / "prompts.txt"), "--dynamic-prompts", "--repeat", str(max(4, KILLS)),
               "--batch", "2", "-o", "out/{index:04}-{seed}.png", "--journal", "journal"]
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    killed.mkdir()
    whole.mkdir()
    begin = time.monotonic()
    rocm_sd(*command, "--plan", cwd=killed)  # a run without pictures: how long it takes until it draws
    assert not (killed / "journal").exists()
    start = time.monotonic() - begin
    rng = random.Random(KILLS)
    kills = 0
    while kills < KILLS:
        process = subprocess.Popen([str(rocm_sd.path), *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=killed)
        try:
            process.wait(start * rng.uniform(0.3, 1.6))
            break  # it came to its end
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
    rocm_sd(*command, cwd=killed)
    again = rocm_sd(*command, cwd=killed)
    assert again.stdout == "" and "batches are there" in again.stderr
    count = 3 * max(4, KILLS) * 2
    pictures = files_below(killed / "out")
    assert sorted(int(name[:4]) for name in pictures) == list(range(1, count + 1))
    lines = (killed / "journal").read_text().splitlines()
    assert sorted(json.loads(line)["batch"] for line in lines[1:]) == list(range(count // 2))
    # The run's seed is in its journal: the same pictures at one go.
    (whole / "journal").write_text(lines[0] + "\n")
    rocm_sd(*command, cwd=whole)
    assert files_below(whole / "out") == pictures


def test_journals_that_do_not_fit(rocm_sd, model, tmp_path):
    args = ["generate", "-m", model, *FAST, "-p", "a cat", "-o", tmp_path / "{index}.png", "--journal", tmp_path / "j"]
    rocm_sd(*args)
    assert "another file" in rocm_sd(*args, "--steps", "2", code=2).stderr
    (tmp_path / "1.png").unlink()
    assert rocm_sd(*args).stdout.strip().endswith("1.png")  # what is gone is drawn again
    for text in ("hello\n", '{"rocm_sd_journal": 9}\n', "[1]\n", '{"rocm_sd_journal": 1, "run": "", "seed": -1}\n', "no newline"):
        (tmp_path / "j").write_text(text)
        assert "no journal of rocm-sd" in rocm_sd(*args, code=3).stderr, text
    assert "--grid" in rocm_sd("generate", "-m", model, *FAST, "--journal", tmp_path / "k", "--grid", "1x1", code=2).stderr
