"""A browser on the server's page, for its tests: fixtures, and what they do again and again. ROCM_SD_SCREENSHOTS names a folder for
pictures of the page."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from serving import Server

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed (tests/requirements.txt)")
CHROMIUM = shutil.which("chromium")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no /usr/bin/chromium: tools/install_deps.sh page, then make test-page")
expect = playwright.expect


@pytest.fixture(scope="module")
def server(rocm_sd, repository, tmp_path_factory):
    loras = tmp_path_factory.mktemp("loras")
    for name in ("ink", "neon_glow", "watercolour"):  # listed by name; never opened here
        (loras / f"{name}.safetensors").write_bytes(b"")
    with Server(rocm_sd.path, "--model", repository / "models" / "demo", "--lora-dir", loras,
                "--control-dir", repository / "models" / "demo_examples") as running:
        yield running


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as p:
        running = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield running
        running.close()


@pytest.fixture
def page(browser, server):
    """A fresh profile. Whatever the page writes to the console as an error, or throws, fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 860}, color_scheme="light")
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.problems = problems
    page.goto(server.url + "/")
    expect(page.locator("#width")).to_have_value("128")  # the model's own size: the page has what it needs
    yield page
    context.close()
    assert not problems, problems


def shot(page, name: str) -> None:
    if folder := os.environ.get("ROCM_SD_SCREENSHOTS"):
        page.screenshot(path=str(Path(folder) / f"{name}.png"))


def draw(page, prompt: str, **fields) -> None:
    before = page.locator("#gallery li").count()
    page.fill("#prompt", prompt)
    for name, value in ({"steps": 6, "seed": 3, "cfg": 4} | fields).items():
        page.fill("#" + name, str(value))
    page.click("#go")
    expect(page.locator("#gallery li")).to_have_count(before + int(page.input_value("#count")), timeout=60_000)
    expect(page.locator("#queue li")).to_have_count(0)


def picture_of(page, index: int = 0) -> np.ndarray:
    """The pixels of a gallery image, as the browser decoded them."""
    data = page.locator("#gallery img").nth(index).evaluate("""async (image) => {
        await image.decode();
        const canvas = Object.assign(document.createElement("canvas"), {width: image.naturalWidth, height: image.naturalHeight});
        const context = canvas.getContext("2d");
        context.drawImage(image, 0, 0);
        return [canvas.width, canvas.height, [...context.getImageData(0, 0, canvas.width, canvas.height).data]];
    }""")
    return np.array(data[2], np.uint8).reshape(data[1], data[0], 4)[..., :3]
