"""The panels of the server's page in Chromium: what is sent and what is left to the model, second pass, inpainting, ControlNets, grids,
previews, enlarging, undo, the queue over a reload; and axe over all of it, in light and dark, wide and narrow."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from page_driver import browser, draw, expect, needs_browser, page, picture_of, server, shot  # noqa: F401
from PIL import Image

pytestmark = needs_browser
DRAWN = {"width": 64, "height": 64, "steps": 2, "cfg": 4, "seed": 3}
PANELS = ["lora-box", "start-box", "control-box", "hires-box", "grid-box"]


def png(color=(255, 255, 255), size=(64, 64)) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, color).save(out, "PNG")
    return out.getvalue()


def sent(page, act) -> dict:
    """The request that the page makes of the form."""
    with page.expect_request(lambda r: r.method == "POST" and r.url.endswith("/v1/jobs")) as request:
        act()
    return request.value.post_data_json


def start_from(page, picture: bytes) -> None:
    if not page.locator("#start-box").evaluate("(e) => e.open"):
        page.click("#start-box summary")
    page.set_input_files("#file", {"name": "start.png", "mimeType": "image/png", "buffer": picture})
    expect(page.locator("#mask")).to_be_visible()


def dab(page) -> None:
    """A stroke of the mask by the keyboard, in the middle."""
    page.focus("#mask")
    page.keyboard.press("Space")
    expect(page.locator("#undo")).to_be_enabled()


def test_what_is_empty_is_left_to_the_model(page, server):
    page.fill("#prompt", "a red apple")
    page.fill("#width", "512")  # for seconds: a small picture is there before it is cancelled
    page.fill("#height", "512")
    request = sent(page, lambda: page.click("#go"))
    assert set(request) == {"model", "prompt", "width", "height", "count", "seed"}
    page.click("#cancel")
    page.fill("#width", "64")
    page.fill("#height", "64")
    page.fill("#steps", "3")
    page.fill("#cfg", "1.5")
    page.fill("#seed", "8")
    request = sent(page, lambda: page.click("#go"))
    assert request["steps"] == 3 and request["cfg_scale"] == 1.5
    expect(page.locator("#gallery button")).to_have_count(1, timeout=30_000)
    page.click("#gallery button")
    expect(page.locator("#parameters")).to_contain_text("Steps: 3")
    page.click("#close")
    page.fill("#steps", "")
    page.click("#gallery button")
    page.click("#use")
    expect(page.locator("#steps")).to_have_value("3")


def test_second_pass(page, server):
    page.click("#hires-box summary")
    page.check("#hires")
    page.fill("#hires-scale", "1.5")
    page.locator("#hires-strength").fill("0.5")
    page.fill("#hires-steps", "3")
    expect(page.locator("#hires-size")).to_have_text("192 × 192")
    shot(page, "hires")
    draw(page, "a red apple", **DRAWN)
    job = server.draw(prompt="a red apple", steps=2, seed=3, cfg_scale=4, width=64, height=64, hires_scale=1.5, hires_steps=3,
                      hires_denoising_strength=0.5)
    assert picture_of(page).shape == (96, 96, 3)
    assert np.array_equal(picture_of(page), np.asarray(server.image(job)))
    page.uncheck("#hires")
    page.click("#gallery button")
    page.click("#use")
    expect(page.locator("#hires")).to_be_checked()


def test_inpainting_modes(page):
    start_from(page, png((40, 90, 160)))
    page.select_option("#masked-content", "latent noise")
    page.check("#only-masked")
    page.fill("#padding", "8")
    page.check("#invert")
    page.fill("#prompt", "a red apple")
    for name, value in DRAWN.items():
        page.fill("#" + name, str(value))
    request = sent(page, lambda: page.click("#go"))
    assert "mask" not in request and "only_masked" not in request  # nothing is painted: all of it is drawn anew
    expect(page.locator("#gallery li")).to_have_count(1, timeout=30_000)
    dab(page)
    request = sent(page, lambda: page.click("#go"))
    wanted = {"masked_content": "latent noise", "only_masked": True, "only_masked_padding": 8, "mask_invert": True, "mask_blur": 4}
    assert wanted.items() <= request.items()
    mask = np.asarray(Image.open(io.BytesIO(base64.b64decode(request["mask"]))).convert("L"))
    assert mask[32, 32] == 255 and mask[0, 0] == 0
    expect(page.locator("#gallery li")).to_have_count(2, timeout=30_000)  # the server takes it


def test_controlnet(page, server, repository):
    edges = repository / "models" / "demo_examples" / "edges" / "2_heart.png"
    page.click("#control-box summary")
    page.click("#add-control")
    unit = page.locator(".unit")
    unit.get_by_role("combobox", name="Model", exact=True).select_option("canny_adapter")
    page.fill("#prompt", "a red heart")
    page.click("#go")
    expect(page.locator("#alert")).to_contain_text("ControlNet 1 has no image")
    unit.locator("input[type=file]").set_input_files(edges)
    expect(unit.locator("img")).to_be_visible()
    unit.get_by_role("slider").fill("0.8")
    shot(page, "control")
    draw(page, "a red heart", **(DRAWN | {"width": 128, "height": 128}))
    control = {"model": "canny_adapter", "image": base64.b64encode(edges.read_bytes()).decode(), "strength": 0.8}
    job = server.draw(prompt="a red heart", steps=2, seed=3, cfg_scale=4, width=128, height=128, controls=[control])
    assert np.array_equal(picture_of(page), np.asarray(server.image(job)))
    page.reload()
    expect(page.locator(".unit img")).to_be_visible()
    expect(page.locator(".unit").get_by_role("combobox", name="Model", exact=True)).to_have_value("canny_adapter")
    page.locator(".unit").get_by_role("button", name="Remove").click()
    expect(page.locator(".unit")).to_have_count(0)
    page.click("#back")  # the image comes back, too
    expect(page.locator(".unit img")).to_be_visible()


def test_grid(page):
    page.click("#grid-box summary")
    page.select_option("#x-axis", "seed")
    page.fill("#x-values", "5-9 (+2)")
    page.select_option("#y-axis", "prompt")
    page.fill("#y-values", "red, blue")
    page.fill("#prompt", "a red apple")
    for name, value in DRAWN.items():
        page.fill("#" + name, str(value))
    page.click("#go-grid")
    expect(page.locator("#grids td img")).to_have_count(6, timeout=60_000)
    names = page.locator("#grids td img").evaluate_all("(all) => all.map((image) => image.alt)")
    assert names == [f"Seed: {seed}, {word}" for word in ("red", "blue") for seed in (5, 7, 9)]
    shot(page, "grid")
    page.locator("#grids td button").nth(4).click()
    expect(page.locator("#parameters")).to_contain_text("a blue apple")
    expect(page.locator("#parameters")).to_contain_text("Seed: 7")
    page.click("#close")
    with page.expect_download() as download:
        page.click("text=Save as one image")
    assert Image.open(download.value.path()).size == (90 + 3 * 64, 24 + 2 * 64)
    page.reload()
    expect(page.locator("#grids td img")).to_have_count(6)
    page.click("text=Remove grid")
    expect(page.locator("#grids li")).to_have_count(0)
    page.click("#toast button")
    expect(page.locator("#grids td img")).to_have_count(6)
    page.fill("#y-values", "green, blue")
    page.click("#go-grid")
    expect(page.locator("#alert")).to_contain_text('the prompt does not contain "green"')
    page.select_option("#y-axis", "sampler")
    page.fill("#y-values", "Eulr")
    page.press("#y-values", "Enter")
    expect(page.locator("#alert")).to_contain_text('"Eulr": expected one of')


def test_ranges_of_grids(page):
    cases = {"1, 2.5,-3": [1, 2.5, -3], "1-4": [1, 2, 3, 4], "1-10 (+3)": [1, 4, 7, 10], "0-1 [3]": [0, 0.5, 1], "0.3-0.9 (+0.2)": [0.3, 0.5, 0.7, 0.9],
             "3-1": [3, 2, 1], "-2--1": [-2, -1], "": []}
    read = """async ([name, text]) => {
        const grid = await import("/grid.js");
        try { return grid[name](text); } catch (error) { return error.message; }
    }"""
    for text, values in cases.items():
        assert page.evaluate(read, ["numbers", text]) == values, text
    assert "expected numbers" in page.evaluate(read, ["numbers", "1, a"])
    assert page.evaluate(read, ["words", ' red, "a, b" ,"say ""hi""",,x']) == ["red", "a, b", 'say "hi"', "x"]


def test_requests_that_wait_outlive_a_reload(page):
    """More than the server takes at once: the rest waits in the browser's database."""
    page.click("#grid-box summary")
    page.select_option("#x-axis", "seed")
    page.fill("#x-values", "1-7")
    page.fill("#prompt", "a red apple")
    for name, value in (DRAWN | {"steps": 30}).items():
        page.fill("#" + name, str(value))
    page.click("#go-grid")
    expect(page.locator("#outbox")).to_be_visible()
    expect(page.locator("#queue li")).to_have_count(4)
    page.reload()
    expect(page.locator("#outbox")).to_contain_text("wait")
    page.click("#drop-outbox")
    expect(page.locator("#outbox")).to_be_hidden()
    expect(page.locator("#grids .gap >> text=cancelled")).not_to_have_count(0)
    page.click("#cancel")
    expect(page.locator("#queue li")).to_have_count(0, timeout=20_000)


def test_undo_and_redo(page):
    expect(page.locator("#back")).to_be_disabled()
    page.fill("#width", "64")
    page.fill("#steps", "11")
    page.fill("#seed", "5")
    page.click("#swap")
    page.select_option("#sampler", "Euler")
    page.click("#back")
    expect(page.locator("#sampler")).to_have_value("")
    page.click("#back")
    expect(page.locator("#width")).to_have_value("64")
    page.focus("#theme")
    page.keyboard.press("Control+z")
    expect(page.locator("#seed")).to_have_value("-1")
    expect(page.locator("#steps")).to_have_value("11")
    page.keyboard.press("Control+Shift+z")
    expect(page.locator("#seed")).to_have_value("5")
    start_from(page, png(size=(72, 96)))
    expect(page.locator("#height")).to_have_value("96")
    page.click("#back")
    expect(page.locator("#start")).to_be_hidden()
    expect(page.locator("#height")).to_have_value("128")
    page.click("#forth")
    expect(page.locator("#start")).to_be_visible()
    dab(page)
    page.click("#remove")
    expect(page.locator("#start")).to_be_hidden()
    page.click("#back")
    expect(page.locator("#start")).to_be_visible()
    expect(page.locator("#undo")).to_be_enabled()  # with its mask


# An image whose source is replaced while it is decoded rejects: previews come many times a second.
DECODED = """async (image) => {
  for (let left = 100; left > 0; --left) {
    try {
      await image.decode();
      return [image.naturalWidth, image.naturalHeight];
    } catch (error) {
      if (error.name !== "EncodingError") throw error;
    }
  }
  return "an image that cannot be decoded";
}"""


def test_live_previews(page):
    """A running job shows its unfinished image: the projection of its latents, an eighth of the size."""
    page.fill("#prompt", "a red apple")
    page.fill("#width", "64")
    page.fill("#height", "96")
    page.fill("#steps", "1000")
    page.click("#go")
    look = page.locator("#queue .look")
    expect(look).to_be_visible(timeout=20_000)
    shown = look.get_attribute("src")
    assert look.evaluate(DECODED) == [8, 12]
    expect(look).not_to_have_attribute("src", shown, timeout=20_000)  # and later ones
    shot(page, "preview")
    page.click("#cancel")
    expect(page.locator("#queue li")).to_have_count(0, timeout=20_000)


def test_enlarging(page, server):
    """Where the server lists upscalers: A1111's request, and a new image."""
    expect(page.locator("#enlarge-box")).to_be_hidden()
    draw(page, "a red apple", **DRAWN)
    document = server.get("/openapi.json").json()
    document["paths"]["/sdapi/v1/extra-single-image"] = {"post": {}}
    page.route("**/openapi.json", lambda route: route.fulfill(json=document))
    page.route("**/sdapi/v1/upscalers", lambda route: route.fulfill(json=[{"name": "None"}, {"name": "Lanczos"}]))
    requests = []

    def enlarge(route):
        requests.append(route.request.post_data_json)
        picture = Image.open(io.BytesIO(base64.b64decode(requests[0]["image"]))).resize((160, 160))
        out = io.BytesIO()
        picture.save(out, "PNG")
        route.fulfill(json={"image": base64.b64encode(out.getvalue()).decode(), "html_info": ""})

    page.route("**/sdapi/v1/extra-single-image", enlarge)
    page.reload()
    page.click("#gallery button")
    expect(page.locator("#enlarge-box")).to_be_visible()
    page.fill("#factor", "2.5")
    page.click("#enlarge")
    expect(page.locator("#gallery li")).to_have_count(2)
    assert {"upscaler_1": "Lanczos", "upscaling_resize": 2.5, "resize_mode": 0}.items() <= requests[0].items()
    expect(page.locator("#parameters")).to_contain_text("Postprocess upscaler: Lanczos")
    page.click("#close")
    assert picture_of(page).shape == (160, 160, 3)


@pytest.mark.parametrize("theme, width", [("light", 1280), ("dark", 375)])
def test_axe_finds_nothing(page, theme, width):
    """axe-core's rules over the page with every panel open, a job, a grid and images, then over the viewer."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed").Axe()
    page.set_viewport_size({"width": width, "height": 800})
    if page.evaluate("document.documentElement.dataset.theme") != theme:
        page.click("#theme")
    for panel in PANELS:
        page.click(f"#{panel} > summary")
    page.click("#add-control")
    page.check("#hires")
    page.select_option("#x-axis", "seed")
    page.fill("#x-values", "1, 2")
    page.fill("#prompt", "a red apple")
    for name, value in DRAWN.items():
        page.fill("#" + name, str(value))
    page.locator(".unit").get_by_role("button", name="Remove").click()
    page.click("#go-grid")
    expect(page.locator("#grids td img")).to_have_count(2, timeout=30_000)
    page.click("#add-control")
    start_from(page, png())
    dab(page)
    page.locator(".unit input[type=file]").set_input_files({"name": "a.png", "mimeType": "image/png", "buffer": png()})
    page.evaluate("document.getElementById('alert').hidden = false; document.getElementById('alert').textContent = 'An error'")
    job = {"id": "a", "state": "running", "created": 1, "images": [],
           "progress": {"fraction": 0.4, "stage": "sample", "step": 4, "total": 10, "round": 0, "rounds": 1, "seconds": 2}}
    page.route("**/v1/jobs", lambda route: route.fulfill(status=202, json=job))  # a job that stays in the list
    page.route("**/v1/jobs/a", lambda route: route.fulfill(json=job))
    page.route("**/v1/jobs/a/events*", lambda route: route.fulfill(content_type="text/event-stream", body="retry: 100000\n\n"))
    page.click("#go")
    expect(page.locator("#queue li")).to_contain_text("step 4 of 10")
    page.evaluate("document.getElementById('enlarge-box').hidden = false")
    told = axe.run(page)
    assert told.violations_count == 0, told.generate_report()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    shot(page, f"axe_{theme}_{width}")
    page.locator("#gallery button").first.click()
    expect(page.locator("#viewer")).to_be_visible()
    told = axe.run(page)
    assert told.violations_count == 0, told.generate_report()
    shot(page, f"axe_viewer_{theme}_{width}")
