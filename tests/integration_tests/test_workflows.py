"""The workflows run what they should: goals that exist, all thorough ones at night, versions that agree."""

from __future__ import annotations

import re

import pytest
import yaml

# Goals that a machine of GitHub's runs by other means, or that need what no runner has.
# .ci/run on every push; NVIDIA's compute-sanitizer takes hours; another emulator's checkout, which the user names.
NOT_NIGHTLY = {"test", "test-gpu-sanitize", "test-emu-differential"}


@pytest.fixture(scope="module")
def goals(repository):
    return set(re.findall(r"^([a-z0-9-]+):.*##", (repository / "Makefile").read_text(), re.M))


def workflow(repository, name):
    return yaml.safe_load((repository / ".github" / "workflows" / f"{name}.yml").read_text())


def made(jobs) -> set[str]:
    """Every goal that a job asks make for, a matrix spelt out."""
    found = set()
    for job in jobs.values():
        for step in job["steps"]:
            for line in step.get("run", "").splitlines():
                for words in re.findall(r"\bmake ((?!\$\()[^&|;]*)", line):
                    for word in words.replace("${{ matrix.goal }}", " ".join(job.get("strategy", {}).get("matrix", {}).get("goal", []))).split():
                        if re.fullmatch(r"[a-z][a-z0-9-]*", word):
                            found.add(word)
    return found


@pytest.mark.parametrize("name", ["ci", "nightly", "packages", "release"])
def test_goals_exist(repository, goals, name):
    jobs = workflow(repository, name)["jobs"]
    lines = [step.get("run", "") for job in jobs.values() for step in job["steps"]]
    unknown = {goal for goal in made(jobs) if goal not in goals} - {"ca-certificates", "git", "make", "gh", "python3", "python3-venv"}
    assert not unknown
    assert lines


def test_the_night_runs_every_thorough_goal(repository, goals):
    wanted = {goal for goal in goals if goal.startswith(("test", "bench", "tidy", "fuzz", "demo-"))} - NOT_NIGHTLY
    runs = [workflow(repository, name) for name in ("nightly", "packages")]
    assert all("schedule" in run[True] for run in runs)  # YAML reads the key `on` as a truth value
    missing = wanted - set.union(*(made(run["jobs"]) for run in runs))
    assert not missing


def test_a_release_names_one_version(repository):
    version = re.search(r"^project\(rocm_sd VERSION (\S+) ", (repository / "CMakeLists.txt").read_text(), re.M)[1]
    sections = re.findall(r"^## \[(.+?)\]", (repository / "CHANGELOG.md").read_text(), re.M)
    assert sections[0] == "Unreleased" and version in sections
    assert f'version = "{version}"' in (repository / "pyproject.toml").read_text()
    assert "make archive" in (repository / ".github" / "workflows" / "release.yml").read_text()
