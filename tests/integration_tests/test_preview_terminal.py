"""--preview-terminal in pseudo-terminals that answer as terminals do: what was written is decoded to pixels again and compared with the file
of --preview-path."""

from __future__ import annotations

import base64
import fcntl
import io
import os
import pty
import re
import select
import struct
import subprocess
import termios
import threading
import time

import numpy as np
import pytest
from PIL import Image

from pictures import psnr, read_picture

KITTY, CELL, ATTRIBUTES = b"\x1b_Gi=31;OK\x1b\\", b"\x1b[6;18;9t", b"\x1b[?62;22c"
SIXEL_ATTRIBUTES = b"\x1b[?62;4;22c"
QUESTION = b"\x1b[c"
STEPS = 4


class Terminal:
    """A pseudo-terminal of 100 x 40 cells. answer: what it sends when it is asked for its attributes."""

    def __init__(self, answer: bytes = ATTRIBUTES, size: tuple[int, int, int, int] = (40, 100, 0, 0)) -> None:
        self.main, self.line = pty.openpty()
        fcntl.ioctl(self.line, termios.TIOCSWINSZ, struct.pack("HHHH", *size))
        self.before = termios.tcgetattr(self.line)
        self.answer, self.written, self.asked = answer, b"", 0

    def run(self, program, *arguments, environment=None, timeout: float = 300) -> int:
        keep = {k: v for k, v in os.environ.items() if k not in ("TERM", "TERM_PROGRAM", "KITTY_WINDOW_ID", "LC_TERMINAL", "TMUX")}
        ended = threading.Event()

        def serve() -> None:
            while True:
                ready = select.select([self.main], [], [], 0.05)[0]
                if not ready and ended.is_set():
                    return
                if ready:
                    self.written += os.read(self.main, 65536)
                    if self.written.count(QUESTION) > self.asked:
                        self.asked += 1
                        os.write(self.main, self.answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            done = subprocess.run([str(program), *map(str, arguments)], stdin=self.line, stderr=self.line, stdout=subprocess.PIPE, timeout=timeout,
                                  env=keep | {"TERM": "xterm-256color"} | (environment or {}), start_new_session=True)
        finally:
            ended.set()
            thread.join()
        assert termios.tcgetattr(self.line) == self.before  # the terminal is left as it was
        return done.returncode

    def close(self) -> None:
        os.close(self.main)
        os.close(self.line)

    @property
    def text(self) -> str:
        return self.written.replace(b"\r\n", b"\n").decode("utf-8", "replace")


@pytest.fixture
def terminal():
    made = []

    def make(*how, **more) -> Terminal:
        made.append(Terminal(*how, **more))
        return made[-1]

    yield make
    for one in made:
        one.close()


def kitty_pictures(written: bytes) -> list[np.ndarray]:
    pictures, data = [], b""
    for keys, part in re.findall(rb"\x1b_G([^;\x1b]*);([^\x1b]*)\x1b\\", written):
        if b"a=q" in keys:
            continue
        assert len(part) <= 4096
        data += part
        if keys.endswith(b"m=0"):
            pictures.append(np.asarray(Image.open(io.BytesIO(base64.b64decode(data, validate=True)))))
            data = b""
    assert not data
    return pictures


def iterm_pictures(written: bytes) -> list[np.ndarray]:
    pictures = []
    for keys, data in re.findall(rb"\x1b\]1337;File=([^:]*):([^\x07]*)\x07", written):
        said, file = dict(part.split(b"=") for part in keys.split(b";")), base64.b64decode(data, validate=True)
        assert said[b"inline"] == b"1" and int(said[b"size"]) == len(file)
        pictures.append(np.asarray(Image.open(io.BytesIO(file))))
    return pictures


def sixel_pictures(written: bytes) -> list[np.ndarray]:
    """Sixels by DEC's manual (VT330/VT340, chapter 14): colours in per cent, bands of six rows, repetitions."""
    pictures = []
    for body in re.findall(rb"\x1bP[0-9;]*q(.*?)\x1b\\", written, re.S):
        colours, pixels, colour, x, y, times = {}, {}, 0, 0, 0, 1
        for token in re.findall(rb'"[0-9;]*|#[0-9;]+|![0-9]+|[?-~]|[$-]', body):
            kind, rest = token[:1], token[1:]
            if kind == b"#":
                numbers = [int(n) for n in rest.split(b";")]
                colour = numbers[0]
                if len(numbers) > 1:
                    assert numbers[1] == 2  # RGB
                    colours[colour] = [round(v * 255 / 100) for v in numbers[2:]]
            elif kind == b"!":
                times = int(rest)
            elif kind == b"$":
                x = 0
            elif kind == b"-":
                x, y = 0, y + 6
            elif kind != b'"':
                bits = token[0] - 63
                for dx in range(times):
                    for k in range(6):
                        if bits >> k & 1:
                            pixels[y + k, x + dx] = colours[colour]
                x, times = x + times, 1
        height, width = max(p[0] for p in pixels) + 1, max(p[1] for p in pixels) + 1
        picture = np.zeros((height, width, 3), np.uint8)
        for place, value in pixels.items():
            picture[place] = value
        assert len(pixels) == height * width
        pictures.append(picture)
    return pictures


@pytest.fixture
def command(build_dir, tiny_model, tmp_path):
    def make(*options):
        return (build_dir / "apps/cli/rocm-sd", "generate", "--model", tiny_model("sd15"), "--prompt", "a cat", "--seed", 3, "--steps", STEPS, "--width", 96,
                "--height", 64, "--device", "cpu", "-o", tmp_path / "out.png", *options)

    return make


@pytest.mark.parametrize("mode", ["proj", "vae"])
@pytest.mark.parametrize("how", ["kitty by answer", "kitty by environment", "iterm", "kitty by name"])
def test_pictures(terminal, command, tmp_path, how, mode):
    tty = terminal(KITTY + CELL + ATTRIBUTES if how == "kitty by answer" else ATTRIBUTES)
    environment = {"kitty by environment": {"TERM": "xterm-kitty"}, "iterm": {"TERM_PROGRAM": "iTerm.app"}}.get(how, {})
    form = ["kitty"] if how == "kitty by name" else []
    file = tmp_path / "look.png"
    assert tty.run(*command("--preview", mode, "--preview-path", file, "--preview-terminal", *form), environment=environment) == 0, tty.text
    assert tty.asked == (how == "kitty by answer")
    pictures = (iterm_pictures if how == "iterm" else kitty_pictures)(tty.written)
    assert len(pictures) == STEPS and pictures[0].shape == ((64, 96, 3) if mode == "vae" else (8, 12, 3))
    assert (pictures[-1] == read_picture(file)).all() and np.std(pictures[-1]) > 1
    assert not (pictures[0] == pictures[-1]).all()
    assert (read_picture(tmp_path / "out.png") > 0).any()


def test_sixels(terminal, command, tmp_path, rocm_sd):
    tty = terminal(SIXEL_ATTRIBUTES, size=(40, 100, 900, 720))  # cells of 9 x 18
    file = tmp_path / "look.png"
    code = tty.run(*command("--preview", "vae", "--preview-path", file, "--preview-terminal"))
    if "built without libsixel" in tty.text:
        assert code == 2
        pytest.skip("built without libsixel")
    assert code == 0, tty.text
    pictures = sixel_pictures(tty.written)
    assert len(pictures) == STEPS
    # 16 rows of 18 pixels: 288 high, of the picture's shape; 256 colours.
    assert pictures[-1].shape == (288, 432, 3)
    want = np.asarray(Image.fromarray(read_picture(file)).resize((432, 288), Image.Resampling.BICUBIC))
    blurred = [np.asarray(Image.fromarray(p).reduce(8)).astype(float) for p in (pictures[-1], want)]  # the error of single pixels is diffused
    assert psnr(pictures[-1].astype(float), want.astype(float)) > 24 and psnr(*blurred) > 32


def test_pictures_take_their_place(terminal, command):
    """The first one makes room; each later one goes up as many rows as it stands high and comes back; one that follows other lines makes
    room again."""
    tty = terminal(KITTY + CELL + ATTRIBUTES)
    assert tty.run(*command("--preview-terminal", "--progress", "bar")) == 0, tty.text
    up, down = re.findall(rb"\x1b\[(\d+)A\x1b7", tty.written), re.findall(rb"\x1b8\x1b\[(\d+)B\r", tty.written)
    assert up == down == [b"16"] * STEPS
    assert tty.written.count(b"\n" * 16) + tty.written.count(b"\r\n" * 16) == 1
    plain = terminal(KITTY + CELL + ATTRIBUTES)
    assert plain.run(*command("--preview-terminal", "--progress", "plain")) == 0, plain.text
    assert plain.written.count(b"\r\n" * 16) == STEPS


def test_a_batch_stands_side_by_side(terminal, command):
    tty = terminal(KITTY + CELL + ATTRIBUTES, size=(40, 120, 0, 0))
    arguments = list(command("--preview-terminal", "--batch", 3))
    out = arguments.index("-o") + 1
    arguments[out] = str(arguments[out]).replace("out.png", "out-{index}.png")
    assert tty.run(*arguments) == 0, tty.text
    # 12 x 8 latents in 16 rows of 18 pixels are 48 columns of 9: two fit beside each other.
    assert len(kitty_pictures(tty.written)) == 2 * STEPS
    assert tty.written.count(b"\x1b7\x1b[49C") == STEPS


@pytest.mark.parametrize("answer, words", [(ATTRIBUTES, "neither kitty's graphics nor sixels"), (b"", "did not answer"), (b"\x1b[?6", "did not answer")])
def test_terminals_of_text_are_refused(terminal, command, tmp_path, answer, words):
    tty = terminal(answer)
    begin = time.monotonic()
    assert tty.run(*command("--preview-terminal")) == 2
    assert words in tty.text and time.monotonic() - begin < 30
    assert not (tmp_path / "out.png").exists()


def test_refusals(terminal, command, rocm_sd):
    for term, word in (("dumb", "TERM is dumb"), ("linux", "TERM is linux"), ("", "TERM is not set")):
        tty = terminal()
        assert tty.run(*command("--preview-terminal"), environment={"TERM": term}) == 2
        assert word in tty.text and tty.asked == 0
    tty = terminal()
    assert tty.run(*command("--preview-terminal", "ascii")) == 2 and "auto, kitty, iterm or sixel" in tty.text
    done = rocm_sd(*command("--preview-terminal", "kitty")[1:], code=2)
    assert "standard error is no terminal" in done.stderr
    tty = terminal(KITTY + ATTRIBUTES)  # tmux passes kitty's form on for nobody: only the answer counts
    assert tty.run(*command("--preview-terminal"), environment={"TERM": "tmux-256color", "TERM_PROGRAM": "iTerm.app"}) == 0
    assert tty.asked == 1
