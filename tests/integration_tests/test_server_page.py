"""The server's page in a real Chromium (Debian's, through Playwright): drawing, the mask, the gallery, what a reload keeps, and
what a keyboard and a screen reader find."""

from __future__ import annotations

import re

import numpy as np
import pytest
from page_driver import browser, draw, expect, needs_browser, page, picture_of, server, shot  # noqa: F401
from PIL import Image
from serving import wait_for

pytestmark = needs_browser


def test_draws_what_the_form_says(page, server):
    page.select_option("#sampler", "DPM++ 2M")
    page.select_option("#schedule", "karras")
    draw(page, "a red apple on a white background", count=2)
    job = server.draw(prompt="a red apple on a white background", steps=6, seed=3, cfg_scale=4, sampler="DPM++ 2M", schedule="karras",
                      width=128, height=128, count=2)
    assert np.array_equal(picture_of(page, 1), np.asarray(server.image(job, 0)))  # newest first
    assert np.array_equal(picture_of(page, 0), np.asarray(server.image(job, 1)))
    shot(page, "drawn")


def test_gallery_gives_settings_back(page):
    draw(page, "a green frog", seed=21)
    page.fill("#prompt", "something else")
    page.fill("#seed", "-1")
    page.click("#gallery button >> nth=0")
    expect(page.locator("#parameters")).to_contain_text("Seed: 21")
    shot(page, "viewer")
    page.click("#use")
    expect(page.locator("#prompt")).to_have_value("a green frog")
    expect(page.locator("#seed")).to_have_value("21")
    page.click("#toast button")  # a mistake: undone
    expect(page.locator("#prompt")).to_have_value("something else")
    page.click("#gallery button >> nth=0")
    page.click("#delete")
    expect(page.locator("#gallery li")).to_have_count(0)
    page.click("#toast button")
    expect(page.locator("#gallery li")).to_have_count(1)


def test_a_reload_loses_nothing(page):
    draw(page, "a blue fish", seed=4)
    page.fill("#negative", "red")
    page.fill("#steps", "1000")
    page.select_option("#sampler", "Euler")
    page.click("#go")
    expect(page.locator("#queue li")).to_have_count(1)
    page.reload()
    expect(page.locator("#negative")).to_have_value("red")
    expect(page.locator("#prompt")).to_have_value("a blue fish")
    expect(page.locator("#sampler")).to_have_value("Euler")
    expect(page.locator("#gallery li")).to_have_count(1)
    expect(page.locator("#queue li")).to_contain_text("a blue fish")
    expect(page.locator("#queue small")).to_contain_text(re.compile(r"step \d+ of 1000"))
    shot(page, "queue")
    page.click("#cancel")
    expect(page.locator("#queue li")).to_have_count(0, timeout=20_000)


def test_mask_brush(page, tmp_path):
    Image.new("RGB", (128, 128), (255, 255, 255)).save(tmp_path / "white.png")
    page.click("#start-box summary")
    page.set_input_files("#file", tmp_path / "white.png")
    canvas = page.locator("#mask")
    expect(canvas).to_be_visible()
    box = canvas.bounding_box()
    page.locator("#brush").fill("200")

    def paint():
        for part in (0.2, 0.4, 0.6, 0.8):
            page.mouse.move(box["x"] + box["width"] * 0.15, box["y"] + box["height"] * part)
            page.mouse.down()
            page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + box["height"] * part, steps=3)
            page.mouse.up()

    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    paint()
    for _ in range(4):
        page.click("#undo")
    expect(page.locator("#undo")).to_be_disabled()
    box = canvas.bounding_box()
    paint()
    shot(page, "mask")
    page.locator("#strength").fill("1")
    page.fill("#blur", "0")
    draw(page, "a black cat", seed=5)
    drawn = picture_of(page).mean(axis=2)
    assert drawn[:, 90:].min() > 200 > drawn[:, :40].min()  # only what was painted is drawn anew
    page.reload()
    expect(page.locator("#mask")).to_be_visible()  # the picture and its mask are still there
    expect(page.locator("#undo")).to_be_enabled()
    page.click("#remove")
    expect(page.locator("#start")).to_be_hidden()


def test_a_dropped_png_restores_its_settings(page, server, tmp_path):
    job = server.draw(prompt="a yellow star, small", negative_prompt="moon", steps=3, seed=77, sampler="Euler a", width=64, height=128,
                      schedule="karras")
    content = list(server.get(job["images"][0]["url"]).content)
    page.evaluate("""(bytes) => {
        const transfer = new DataTransfer();
        transfer.items.add(new File([new Uint8Array(bytes)], "a.png", {type: "image/png"}));
        document.body.dispatchEvent(new DragEvent("drop", {dataTransfer: transfer, bubbles: true, cancelable: true}));
    }""", content)
    for field, value in {"prompt": "a yellow star, small", "negative": "moon", "steps": "3", "seed": "77", "width": "64", "height": "128",
                         "sampler": "Euler a", "schedule": "karras"}.items():
        expect(page.locator("#" + field)).to_have_value(value)


def test_loras_go_into_the_prompt(page):
    page.fill("#prompt", "a house")
    page.click("#lora-box summary")
    page.click("text=neon_glow")
    expect(page.locator("#prompt")).to_have_value("a house <lora:neon_glow:1>")
    expect(page.locator("text=neon_glow")).to_have_attribute("aria-pressed", "true")
    page.fill("#lora-filter", "ink")
    expect(page.locator("#loras li")).to_have_count(1)
    page.fill("#lora-filter", "")
    page.click("#loras >> text=neon_glow")
    expect(page.locator("#prompt")).to_have_value("a house")


def test_errors_are_said_and_text_is_text(page):
    page.fill("#prompt", "<img src=x onerror=alert(1)> <lora:none:1>")
    page.click("#go")
    expect(page.locator("#alert")).to_contain_text('no LoRA "none"')
    page.fill("#prompt", "a [b:")
    draw(page, "<b>bold</b> & <script>alert(1)</script>")
    page.click("#gallery button >> nth=0")
    expect(page.locator("#parameters")).to_contain_text("<script>")
    page.problems[:] = [p for p in page.problems if "400" not in p]  # the refused request itself


def test_keyboard_alone(page):
    page.focus("#prompt")
    page.keyboard.type("a purple grape")
    page.fill("#steps", "2")
    page.focus("#prompt")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#gallery li")).to_have_count(1, timeout=30_000)
    page.focus("#gallery button")
    page.keyboard.press("Enter")
    expect(page.locator("#viewer")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#viewer")).to_be_hidden()


def test_every_control_has_a_name(page):
    """What a screen reader says of each control, by the browser's own rules."""
    page.click("#start-box summary")
    nameless = page.evaluate("""() => [...document.querySelectorAll("button, input, select, textarea, canvas, progress, dialog")]
        .filter((e) => !(e.labels?.length || e.ariaLabel || e.textContent.trim()))
        .map((e) => e.outerHTML)""")
    assert nameless == []
    roles = page.evaluate("() => [...document.querySelectorAll('[role=alert], [role=status], main, h1, header')].length")
    assert roles >= 5


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_contrast(page, theme):
    """Text against its ground: at least 4.5 to 1 (WCAG 2, AA)."""
    if page.evaluate("document.documentElement.dataset.theme") != theme:
        page.click("#theme")
    ratios = page.evaluate("""() => {
        const parse = (c) => c.match(/[\\d.]+/g).map(Number);
        const light = ([r, g, b]) => [r, g, b].map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
            .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
        const ground = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor);
            if (c.length === 3 || c[3] > 0) return c; } return [255, 255, 255]; };
        return [...document.querySelectorAll("label, legend, p, button, summary, h1, input, select")]
            .filter((e) => e.offsetParent && e.textContent.trim() && !e.disabled).map((e) => {
                const [a, b] = [light(parse(getComputedStyle(e).color)), light(ground(e))].sort((x, y) => y - x);
                return [(a + 0.05) / (b + 0.05), e.outerHTML.slice(0, 80)];
            });
    }""")
    assert len(ratios) > 20
    assert [bad for bad in ratios if bad[0] < 4.5] == []
    shot(page, f"theme_{theme}")


def test_phone(browser, server):
    context = browser.new_context(viewport={"width": 375, "height": 740}, device_scale_factor=2, is_mobile=True, has_touch=True, color_scheme="dark")
    page = context.new_page()
    page.goto(server.url + "/")
    expect(page.locator("#width")).to_have_value("128")
    draw(page, "a red heart")
    assert page.evaluate("document.documentElement.scrollWidth") <= 375  # nothing sticks out
    small = page.evaluate("""() => [...document.querySelectorAll("button, select, input:not([type=checkbox], [type=file])")]
        .filter((e) => e.offsetParent && e.getBoundingClientRect().height < 24).map((e) => e.outerHTML)""")
    assert [e for e in small if "range" not in e] == []  # fingers hit them
    shot(page, "phone")
    context.close()


def test_policy_and_files(server):
    response = server.get("/")
    policy = response.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert not re.search(r"<script(?![^>]*src)|\son\w+=|style=", response.text)
    for path in ("/app.js", "/app.css", "/core.js", "/fields.js", "/grid.js", "/icon.svg"):
        assert server.get(path).headers["X-Content-Type-Options"] == "nosniff"
    assert server.get("/README.md").status_code == 404
    wait_for(lambda: server.get("/health").ok, 5, "health")
