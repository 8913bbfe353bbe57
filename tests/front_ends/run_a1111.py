#!/usr/bin/env python3
"""Runs an AUTOMATIC1111 checkout with integrations/automatic1111 in it: make test-a1111 A1111_DIR=... [A1111_PYTHON=...]

    tests/front_ends/run_a1111.py DIR [--python PYTHON] [--checkpoint FILE] [--size N] [--steps N]

The real program starts headless (its API alone) over a data folder of its own, loads the extension, and draws the same picture with
PyTorch's attention ("off"), with each level, and with the engine as SD Unet; pictures must agree (at least 50 dB of the 8-bit PNGs),
and the infotext must name the level. PYTHON has that program's requirements, installed beforehand, and its repositories are there;
rocm_sd_ops is installed in it, or found in this checkout through ROCM_SD_TORCH_LIBRARY. Exit code 0: all agreed; 1: not, and the
reason; 2: there is no checkout to test.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
import tempfile
from pathlib import Path

from checkout_program import LEAST_DB, REPOSITORY, Failed, WebProgram, free_port, make_checkpoint, psnr


class Program(WebProgram):
    """A running AUTOMATIC1111."""

    def __init__(self, checkout: Path, python: str, data: Path, checkpoint: Path) -> None:
        port = free_port()
        command = [python, "launch.py", "--nowebui", "--port", str(port), "--skip-prepare-environment", "--skip-install",
                   "--skip-torch-cuda-test", "--use-cpu", "all", "--no-half", "--precision", "full", "--no-hashing", "--server-name", "127.0.0.1", "--data-dir",
                   str(data), "--ckpt", str(checkpoint)]
        super().__init__(command, checkout, data / "program.log", port)

    def wait_until_up(self, seconds: float) -> dict:
        try:
            return self.wait_for("/rocm_sd/v1/status", seconds)
        except Failed as failed:
            raise Failed(f"the extension was not loaded: {failed}\n{self.last_lines()}") from None

    def draw(self, size: int, steps: int, level: str, unet: str = "None") -> tuple[bytes, str]:
        """A picture and its infotext."""
        made = self.request("/sdapi/v1/txt2img", {
            "prompt": "a cat on a chair", "negative_prompt": "a dog", "steps": steps, "width": size, "height": size, "seed": 7,
            "cfg_scale": 5.0, "sampler_name": "Euler", "override_settings": {"sd_unet": unet},
            "alwayson_scripts": {"ROCm SD Optimization": {"args": [level]}}}, seconds=1800)
        return base64.b64decode(made["images"][0]), json.loads(made["info"])["infotexts"][0]


def check(program: Program, size: int, steps: int) -> list[str]:
    print("the program is up:", json.dumps(program.wait_until_up(1200)), flush=True)
    want, _ = program.draw(size, steps, "off")
    problems = []
    for level, unet in (("auto", "None"), ("performance", "None"), ("memory", "None"), ("auto", "rocm-sd engine")):
        name = f"level {level}, SD Unet {unet}"
        try:
            picture, infotext = program.draw(size, steps, level, unet)
            db = psnr(picture, want)
        except Failed as failed:
            problems.append(f"{name}: {failed}")
            continue
        print(f"{name}: {db:.1f} dB", flush=True)
        told = program.request("/rocm_sd/v1/status")
        if told["attention"] != "rocm-sd" or (told["unet"] or "None") != unet or bool(told["layers"]) != (unet == "None"):
            problems.append(f"{name}: not what drew: {told}")
        if db < LEAST_DB:
            problems.append(f"{name}: {db:.1f} dB, expected at least {LEAST_DB}")
        if f"ROCm SD level: {level}" not in infotext:
            problems.append(f"{name}: the infotext does not name the level: {infotext[-300:]}")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", nargs="?", default="", help="AUTOMATIC1111's folder")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=2)
    args = parser.parse_args()
    checkout = Path(args.checkout).resolve()
    if not args.checkout or not (checkout / "launch.py").is_file():
        print("not run: no AUTOMATIC1111 checkout: make test-a1111 A1111_DIR=/path/to/stable-diffusion-webui", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="rocm-sd-a1111-") as folder:
        data = Path(folder)
        (data / "extensions").mkdir()
        (data / "extensions" / "rocm_sd").symlink_to(REPOSITORY / "integrations" / "automatic1111")
        program = Program(checkout, args.python, data, (args.checkpoint or make_checkpoint()).resolve())
        try:
            problems = check(program, args.size, args.steps)
        except Failed as failed:
            problems = [str(failed)]
        finally:
            program.stop()
    for problem in problems:
        print("FAILED:", problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
