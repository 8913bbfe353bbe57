#!/usr/bin/env python3
"""The same image by Diffusers, by Diffusers with our operators, by the C++ engine, and by what else is named: times and PSNR.

    benchmarks/picture_comparison.py                                  # the demo model, on a CPU or the first GPU
    benchmarks/picture_comparison.py -m FOLDER --size 512 --steps 20 --rounds 5 --baseline "RTX 4090" --out report
    benchmarks/picture_comparison.py -m FOLDER --checkpoint FILE --sd-cpp path/to/sd-cli --comfyui path/to/ComfyUI

Rounds are interleaved, after one that is not counted; medians count. All draw Euler's method on the normal schedule from the
same noise, so that their pictures are comparable: each one's PSNR to Diffusers' in float32 stands beside its time.
stable-diffusion.cpp and ComfyUI take the single file --checkpoint, which must hold the same weights as the folder. --out writes
JSON, Markdown, plots and the pictures. Published figures of other GPUs come from share/published.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Optional

REPOSITORY = Path(__file__).resolve().parents[1]
for _folder in ("tests/front_ends", "benchmarks", "examples"):
    sys.path.insert(0, str(REPOSITORY / _folder))
from _checkout import DEMO_MODEL, use_checkout  # noqa: E402

use_checkout()
import comparison_report as reports  # noqa: E402
import numpy as np  # noqa: E402
import record  # noqa: E402
import torch  # noqa: E402
from diffusers import DiffusionPipeline, EulerDiscreteScheduler  # noqa: E402
from picture_quality import psnr  # noqa: E402
from PIL import Image  # noqa: E402
from time_limit import time_limit  # noqa: E402

PROGRAMS = ("diffusers", "channels_last", "optimized", "engine", "compile", "optimized-compile")
TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


class Program:
    """draw() gives the picture [H,W,3] uint8, and the seconds where it knows them better than a clock outside."""

    def __init__(self, name: str, dtype: str, draw: Callable[[], Any], note: str = "", close: Callable[[], None] = lambda: None):
        self.name, self.dtype, self.draw, self.note, self.close = name, dtype, draw, note, close
        self.seconds: list[float] = []
        self.picture: Optional[np.ndarray] = None

    def round(self, counted: bool) -> None:
        begin = time.perf_counter()
        drawn = self.draw()
        took = time.perf_counter() - begin
        self.picture, own = drawn if isinstance(drawn, tuple) else (drawn, None)
        if counted:
            self.seconds.append(own if own is not None else took)


def load(args: argparse.Namespace, device: torch.device, dtype: torch.dtype) -> DiffusionPipeline:
    pipe = DiffusionPipeline.from_pretrained(args.model, torch_dtype=dtype).to(device)
    pipe.scheduler = EulerDiscreteScheduler.from_config(pipe.scheduler.config, timestep_spacing="linspace")
    pipe.set_progress_bar_config(disable=True)
    if getattr(pipe, "safety_checker", None) is not None:
        pipe.safety_checker = None
    return pipe


def noise(args: argparse.Namespace, pipe: DiffusionPipeline) -> torch.Tensor:
    """float32 from PyTorch's CPU generator, as ComfyUI, stable-diffusion.cpp's --rng cpu and the engine's rng cpu draw it."""
    scale = pipe.vae_scale_factor
    shape = (1, pipe.unet.config.in_channels, args.size // scale, args.size // scale)
    return torch.randn(shape, generator=torch.Generator().manual_seed(args.seed))


def by_diffusers(args: argparse.Namespace, pipe: DiffusionPipeline) -> Callable[[], np.ndarray]:
    latents = noise(args, pipe).to(pipe.device, pipe.unet.dtype)

    def draw() -> np.ndarray:
        picture = pipe(args.prompt, negative_prompt=args.negative, num_inference_steps=args.steps, guidance_scale=args.guidance,
                       width=args.size, height=args.size, latents=latents.clone(), output_type="np").images[0]
        return np.rint(255 * picture).astype(np.uint8)

    return draw


def engine_program(args: argparse.Namespace, dtype: str) -> Program:
    from rocm_sd_ops.engine import ROCmOptimizedPipeline

    engine = ROCmOptimizedPipeline(args.model, device=args.engine_device, dtype=dtype)

    def draw() -> np.ndarray:
        return engine(args.prompt, negative_prompt=args.negative, num_inference_steps=args.steps, guidance_scale=args.guidance,
                      width=args.size, height=args.size, seed=args.seed, sampler="euler", schedule="normal", rng="cpu",
                      plain_prompt=True, output_type="np").images[0]

    return Program("C++ engine", dtype, draw, close=engine.close)


def sd_cpp_program(args: argparse.Namespace, folder: Path) -> Program:
    """A process a picture: its own report of the time leaves out loading the model."""
    picture = folder / "sd-cpp.png"
    command = [str(args.sd_cpp), "-m", str(args.checkpoint), "-p", args.prompt, "-n", args.negative, "--steps", str(args.steps),
               "--cfg-scale", str(args.guidance), "-W", str(args.size), "-H", str(args.size), "-s", str(args.seed), "--rng", "cpu",
               "--sampling-method", "euler", "--scheduler", "discrete", "-o", str(picture), *shlex.split(args.sd_cpp_args)]

    def draw() -> tuple[np.ndarray, float]:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        output = done.stdout + done.stderr
        took = re.search(r"(?:generate_image|txt2img) completed in ([\d.]+)\s*s", output)
        if done.returncode != 0 or took is None or not picture.is_file():
            raise RuntimeError(f"{shlex.join(command)}\nexit code {done.returncode}\n{output[-2000:]}")
        return np.asarray(Image.open(picture).convert("RGB")), float(took[1])

    return Program("stable-diffusion.cpp", "as the file", draw, "its own time, without loading")


def comfyui_program(args: argparse.Namespace, folder: Path, dtype: str) -> Program:
    """A headless server; the time is that of a whole prompt, whose seed is another each time because it caches results: the
    first one's is --seed, and its picture is compared."""
    import run_comfyui

    for name in ("custom_nodes", "models/checkpoints", "input", "output", "temp", "user"):
        (folder / name).mkdir(parents=True)
    checkpoint = Path(args.checkpoint).resolve()
    (folder / "models" / "checkpoints" / checkpoint.name).symlink_to(checkpoint)
    kinds = {"f32": "fp32", "f16": "fp16", "bf16": "bf16"}
    server = run_comfyui.Server(Path(args.comfyui).resolve(), args.comfyui_python, folder, "cpu" if args.device == "cpu" else "",
                                [f"--{kinds[dtype]}-{part}" for part in ("unet", "vae")], poll=0.005)
    first: list[np.ndarray] = []

    def draw() -> np.ndarray:
        graph = run_comfyui.workflow(checkpoint.name, args.size, args.steps)
        graph["yes"]["inputs"]["text"], graph["no"]["inputs"]["text"] = args.prompt, args.negative
        graph["sample"]["inputs"] |= {"seed": args.seed + draw.count, "cfg": args.guidance}
        draw.count += 1
        picture = np.asarray(Image.open(io.BytesIO(server.draw(graph, 3600))).convert("RGB"))
        first.append(picture)
        return first[0]

    draw.count = 0
    try:
        server.wait_until_up(600)
    except BaseException:
        server.stop()
        raise
    return Program("ComfyUI", dtype, draw, "a prompt to its server", server.stop)


def programs_of(args: argparse.Namespace, device: torch.device, dtype: str, folder: Path) -> tuple[list[Program], list[str]]:
    """Those asked for, and why some are not there."""
    made, missing = [], []

    def diffusers(name: str, optimized: bool, compiled: bool, channels_last: bool = False) -> Program:
        pipe = load(args, device, TYPES[dtype])
        if channels_last:
            pipe.unet.to(memory_format=torch.channels_last)
            pipe.vae.to(memory_format=torch.channels_last)
        if optimized:
            import rocm_sd_ops

            rocm_sd_ops.optimize_sd_model(pipe)
        if compiled:
            pipe.unet.to(memory_format=torch.channels_last)
            pipe.unet.compile(mode="reduce-overhead", fullgraph=True)
            pipe.vae.decode = torch.compile(pipe.vae.decode)
        return Program(name, dtype, by_diffusers(args, pipe))

    kinds: dict[str, Callable[[], Program]] = {
        "diffusers": lambda: diffusers("Diffusers", False, False),
        "channels_last": lambda: diffusers("Diffusers, channels_last", False, False, channels_last=True),
        "optimized": lambda: diffusers("Diffusers, optimize_sd_model", True, False),
        "engine": lambda: engine_program(args, dtype),
        "compile": lambda: diffusers("Diffusers, torch.compile", False, True),
        "optimized-compile": lambda: diffusers("the same, torch.compile", True, True),
    }
    if args.sd_cpp:
        kinds["sd.cpp"] = lambda: sd_cpp_program(args, folder)
    if args.comfyui:
        kinds["comfyui"] = lambda: comfyui_program(args, folder / "comfyui", dtype)
    for name, make in kinds.items():
        if name in PROGRAMS and name not in args.programs:
            continue
        if args.limit and time.monotonic() > args.end:
            missing.append(f"{name}: no time was left of {args.limit:.0f} s")
            continue
        try:
            with time_limit(args.end - time.monotonic() if args.limit else 0):
                program = make()
                made.append(program)
                program.round(counted=False)  # compiles, plans, fills caches
        except Exception as error:  # noqa: BLE001 (the others are still worth their time)
            if made and made[-1].picture is None:
                made.pop().close()
            missing.append(f"{name}: {str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__}")
            print(f"{name} is left out: {error}", file=sys.stderr)
    return made, missing


def kind_of_work(args: argparse.Namespace, pipe: DiffusionPipeline) -> str:
    """As share/published names it; "" for a model that nobody published figures of."""
    unet = pipe.unet.config
    widths = tuple(unet.block_out_channels)
    if widths == (320, 640, 1280, 1280) and unet.cross_attention_dim == 768:
        return f"sd15 {args.size}x{args.size}"
    if widths == (320, 640, 1280) and unet.cross_attention_dim == 2048:
        return f"sdxl {args.size}x{args.size}"
    return ""


def describe_system() -> str:
    import diffusers

    gpu = [f"ROCm {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}"] if torch.version.hip or torch.version.cuda else []
    return record.system(f"PyTorch {torch.__version__}", f"Diffusers {diffusers.__version__}", *gpu)


def describe_device(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{record.cpu_name()}, {torch.get_num_threads()} threads"


def commit() -> str:
    known = record.commit()
    if known != "unknown":
        return known
    import rocm_sd_ops

    return f"rocm_sd_ops {rocm_sd_ops.__version__}"


def compare(args: argparse.Namespace) -> dict:
    import rocm_sd_ops  # here, so that --help needs no built library

    device = torch.device("cpu") if args.device == "cpu" else rocm_sd_ops.ROCmSDBackend().device
    args.engine_device = "cpu" if device.type == "cpu" else "auto"
    dtype = args.dtype or ("f16" if device.type == "cuda" else "f32")
    exact = load(args, device, torch.float32)
    args.size = args.size or exact.unet.config.sample_size * exact.vae_scale_factor
    work = kind_of_work(args, exact)
    want = by_diffusers(args, exact)()
    del exact
    with tempfile.TemporaryDirectory(prefix="rocm-sd-comparison-") as folder:
        programs, missing = programs_of(args, device, dtype, Path(folder))
        try:
            for counted in range(args.rounds):
                if counted > 0 and args.limit and time.monotonic() > args.end:
                    missing.append(f"rounds {counted + 1} to {args.rounds}: no time was left of {args.limit:.0f} s")
                    break
                for i in range(len(programs)):  # another one begins each round
                    programs[(counted + i) % len(programs)].round(counted=True)
        finally:
            for program in programs:
                program.close()
    if not programs:
        raise SystemExit("nothing was drawn: " + "; ".join(missing))
    rows = [{"name": p.name, "dtype": p.dtype, "note": p.note, "psnr_db": psnr(want / 255, p.picture / 255)}
            | reports.summarise(p.seconds, args.steps) for p in programs]
    figures = reports.published_figures()
    report = {"command": shlex.join(["benchmarks/picture_comparison.py", *args.words]), "model": Path(args.model).name, "work": work or "this model",
              "width": args.size, "height": args.size, "steps": args.steps, "guidance": args.guidance, "seed": args.seed,
              "prompt": args.prompt, "rounds": args.rounds, "device": describe_device(device), "system": describe_system(),
              "commit": commit(), "reference": "Diffusers' in float32", "programs": rows, "left_out": missing, "baseline": args.baseline,
              "published": reports.percentages(rows, work, args.baseline, figures)}
    if args.out:
        (args.out / "pictures").mkdir(parents=True, exist_ok=True)
        Image.fromarray(want).save(args.out / "pictures" / "reference.png")
        for program in programs:
            Image.fromarray(program.picture).save(args.out / "pictures" / (re.sub(r"\W+", "-", program.name).strip("-") + ".png"))
    return report


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default=str(DEMO_MODEL), help="Diffusers folder")
    parser.add_argument("--prompt", default="a smiling cat")
    parser.add_argument("--negative", default="")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--guidance", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--size", type=int, default=0, help="pixels [the model's own]")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=0, metavar="SECONDS", help="begin nothing more after so long; 0: none [0]")
    parser.add_argument("--device", choices=("auto", "cpu"), default="auto")
    parser.add_argument("--dtype", choices=tuple(TYPES), help="[f16 on a GPU, f32 on a CPU]")
    parser.add_argument("--programs", default="", help=f"of {', '.join(PROGRAMS)} [without the compiled ones on a CPU]")
    parser.add_argument("--compile", action="store_true", help="the compiled ones on a CPU, too")
    parser.add_argument("--checkpoint", type=Path, help="the same weights as one file, for the next two")
    parser.add_argument("--sd-cpp", type=Path, help="stable-diffusion.cpp's program")
    parser.add_argument("--sd-cpp-args", default="", help="more of its options (--prediction v --diffusion-fa)")
    parser.add_argument("--comfyui", type=Path, help="ComfyUI's folder")
    parser.add_argument("--comfyui-python", default=sys.executable, help="a Python with its requirements")
    parser.add_argument("--baseline", default="RTX 4090", help="the GPU whose published figures are 100 percent")
    parser.add_argument("--out", type=Path, help="folder of the report")
    args = parser.parse_args(words)
    args.words = words
    args.end = time.monotonic() + args.limit
    compiled = args.compile or (args.device != "cpu" and torch.cuda.is_available())
    chosen = args.programs.split(",") if args.programs else [p for p in PROGRAMS if compiled or "compile" not in p]
    for name in chosen:
        if name not in PROGRAMS:
            parser.error(f"--programs {name}: expected {', '.join(PROGRAMS)}")
    args.programs = chosen
    if (args.sd_cpp or args.comfyui) and not args.checkpoint:
        parser.error("--sd-cpp and --comfyui need --checkpoint, the model's weights in one file")
    for option, path in (("--checkpoint", args.checkpoint), ("--sd-cpp", args.sd_cpp), ("--comfyui", args.comfyui and args.comfyui / "main.py")):
        if path and not path.is_file():
            parser.error(f"{option}: no file {path}")
    if args.rounds < 1:
        parser.error("--rounds: expected 1 or more")
    known = sorted({figure["gpu"] for figure in reports.published_figures()})
    if args.baseline and args.baseline not in known:
        parser.error(f"--baseline {args.baseline}: figures are there of {', '.join(known)}")
    return args


def main() -> None:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    args = parse(sys.argv[1:])
    report = compare(args)
    print(reports.markdown(report))
    if args.out:
        print(f"the report is {reports.write(report, args.out)}")


if __name__ == "__main__":
    main()
