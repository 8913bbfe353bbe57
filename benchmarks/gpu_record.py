#!/usr/bin/env python3
"""All measurements of a GPU that the documents show, in one call of a few minutes, on a machine that needs no network.

    benchmarks/gpu_record.py --bundle out/gpu-record.tar.xz --out "$OUT" --minutes 7.5
    benchmarks/gpu_record.py --keep FOLDER          # afterwards, in the checkout: its files into docs/benchmarks and benchmarks/baselines

The bundle (benchmarks/pack_gpu_record.sh makes it) holds the built programs, their libraries, the kernel archives and wheels of
pure Python (Diffusers). PyTorch and transformers are the machine's. Parts, in the order in which they are worth their time:

    models     UNets and VAE decoders: rocm-sd (bench_model_gpu), optimize_sd_model, Diffusers eager, channels_last, torch.compile,
               alternated in the same run                                      -> DEVICE_models.json
    gate       the shapes of SD 1.5 with most work, by `rocm-sd bench`: the baseline of `make bench-gate`  -> baselines/DEVICE.json
    pictures   whole images of SD 1.5: benchmarks/picture_comparison.py         -> DEVICE_pictures.json
    ops        each op of a step beside cuBLASLt and cuDNN, by `rocm-sd bench`  -> DEVICE_ops.json

Each file is written as soon as there is something to write and again when more has come; a part that fails or is late says so in
"left_out" and leaves the others their time. torch.compile runs for all models first, several at once, while nothing is timed.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Callable, Iterator, Optional

sys.path.insert(0, str(Path(__file__).resolve().parent))
import record  # noqa: E402
import record_parts as parts  # noqa: E402
from clocks import ClockLog, meter_for  # noqa: E402

PARTS = ("models", "gate", "pictures", "ops")
WORKS = ("sd15-unet:512x512:1", "sdxl-unet:1024x1024:1", "sd21-unet:768x768:1", "sd15-unet:512x512:4", "vae:512x512:1",
         "sd15-unet:512x512:8", "sdxl-unet:1024x1536:1", "sd15-unet:512x512:16", "vae:1024x1024:1")


class Machine:
    """The device, the bundle's programs, the environment of children, and the time that is left."""

    def __init__(self, args: argparse.Namespace, folder: Path):
        self.args, self.folder, self.out = args, folder, args.out
        self.end = time.monotonic() + 60 * args.minutes
        self.bundle = self.unpack(args.bundle) if args.bundle else None
        self.meter = meter_for(args.device)
        self.left_out: list[str] = []
        self.env = self.environment()
        self.name, self.system, self.peer = self.describe()
        self.commit = (self.bundle / "commit").read_text().strip() if self.bundle and (self.bundle / "commit").is_file() else record.commit()

    def left(self) -> float:
        return self.end - time.monotonic()

    def say(self, text: str) -> None:
        print(f"[{60 * self.args.minutes - self.left():6.1f} s] {text}", flush=True)

    def unpack(self, source: Path) -> Path:
        if source.is_dir():
            return source.resolve()
        target = self.folder / "bundle"
        with tarfile.open(source) as archive:
            archive.extractall(target, filter="data")
        return target

    def program(self, name: str) -> Optional[Path]:
        path = (self.bundle or Path("/nowhere")) / name
        return path if path.is_file() else None

    def lacking(self) -> str:
        """A folder with the bundle's libraries that this system has not: another system's libcrypto may not suit its Python."""
        folder = self.folder / "libraries"
        folder.mkdir()
        for library in sorted((self.bundle or self.folder).glob("*.so*")):
            try:
                ctypes.CDLL(library.name)
            except OSError:
                (folder / library.name).symlink_to(library)
        return str(folder)

    def environment(self) -> dict[str, str]:
        """Where children find the package, Diffusers, the kernels, the shipped files, and libraries."""
        env = dict(os.environ, HF_HUB_OFFLINE="1", OMP_WAIT_POLICY="passive", TOKENIZERS_PARALLELISM="false",
                   ROCM_SD_SHARE=str(record.REPOSITORY / "share"), XDG_CACHE_HOME=str(self.folder / "cache"))
        packed = (self.bundle or self.folder) / "python"  # its structs are those of the bundle's libraries
        packages = [str(packed if packed.is_dir() else record.REPOSITORY / "python")]
        for wheel in sorted((self.bundle or self.folder).glob("wheels/*.whl")):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(self.folder / "packages")
        if (self.folder / "packages").is_dir():
            packages.append(str(self.folder / "packages"))
        env["PYTHONPATH"] = os.pathsep.join([*packages, *filter(None, [os.environ.get("PYTHONPATH")])])
        if self.bundle:
            env |= {"ROCM_SD_KERNELS": str(self.bundle), "ROCM_SD_TORCH_LIBRARY": str(self.bundle / "librocm_sd_torch.so"),
                    "ROCM_SD_LIBRARY": str(self.bundle / "librocm_sd.so")}
        env["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [self.lacking(), *parts.vendor_folders(), os.environ.get("LD_LIBRARY_PATH")]))
        return env

    def describe(self) -> tuple[str, str, bool]:
        """The device's name, the system, and whether PyTorch and Diffusers can be compared with."""
        code = ("import json, torch\nout = dict(torch=torch.__version__, cuda=torch.version.cuda, hip=torch.version.hip)\n"
                f"out['name'] = torch.cuda.get_device_name() if {self.args.device!r} != 'cpu' else ''\n"
                "try:\n    import diffusers\n    out['diffusers'] = diffusers.__version__\n"
                "except Exception as error:\n    out['why'] = f'{type(error).__name__}: {error}'\nprint(json.dumps(out))")
        found = parts.json_of(self.run([sys.executable, "-c", code], 120), "{}")
        more = [f"{kind} {found[key]}" for kind, key in (("CUDA", "cuda"), ("ROCm", "hip"), ("PyTorch", "torch"), ("Diffusers", "diffusers"))
                if found.get(key)]
        if "diffusers" not in found:
            self.left_out.append(f"PyTorch's implementations: {found.get('why', 'PyTorch cannot be imported or sees no GPU')}")
        name = found.get("name") or (self.args.device if self.args.device != "cpu" else record.cpu_name())
        return name, record.system(*more), "diffusers" in found

    def run(self, command: list, seconds: float, log: str = "") -> Optional[str]:
        """A program's standard output; None where it failed or was late, which left_out then says."""
        name = log or Path(str(command[0])).name
        try:
            done = subprocess.run([str(word) for word in command], capture_output=True, text=True, errors="replace", env=self.env,
                                  stdin=subprocess.DEVNULL, timeout=max(1.0, min(seconds, self.left())), cwd=self.folder)
        except subprocess.TimeoutExpired:
            self.left_out.append(f"{name}: not done within {seconds:.0f} s")
            return None
        except OSError as error:
            self.left_out.append(f"{name}: {error}")
            return None
        (self.folder / "logs").mkdir(exist_ok=True)
        (self.folder / "logs" / f"{name}.log").write_text(done.stdout + done.stderr)
        if done.returncode != 0:
            words = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
            self.left_out.append(f"{name}: exit code {done.returncode}: {words[-1][:200] if words else ''}")
            return None
        return done.stdout

    def slug(self) -> str:
        return parts.slug(self.name)

    def write(self, benchmark: str, command: str, clocks: Optional[dict], peers: list[str], tables: dict, **more: object) -> None:
        data = record.new(benchmark, command, self.name, self.driver(), self.system, self.commit, clocks, peers, tables,
                          sorted(set(self.left_out)))
        record.write(self.out / f"{self.slug()}_{benchmark}.json", data | more)

    def driver(self) -> str:
        return (self.meter.driver() if self.meter else "") or record.system()

    def command(self, part: str) -> str:
        more = "" if tuple(self.args.works) == WORKS or part != "models" else f" --works {' '.join(self.args.works)}"
        return f"benchmarks/gpu_record.py --parts {part} --device {self.args.device}{more}"

    @contextlib.contextmanager
    def clocked(self) -> Iterator[ClockLog]:
        with ClockLog(self.meter) as log:
            yield log


def run_parts(machine: Machine) -> None:
    bodies: dict[str, Callable[[Machine], None]] = {"models": parts.models, "gate": parts.gate, "pictures": parts.pictures, "ops": parts.ops}
    for name in machine.args.parts:
        if machine.left() < 15:
            machine.left_out.append(f"{name}: no time was left")
            machine.say(machine.left_out[-1])
            continue
        machine.say(f"part {name}, {machine.left():.0f} s left")
        try:
            bodies[name](machine)
        except Exception as error:  # noqa: BLE001 (the others are still worth their time)
            machine.left_out.append(f"{name}: {type(error).__name__}: {error}")
            machine.say(machine.left_out[-1])


def keep(folder: Path, root: Path) -> int:
    """The records of a run into the checkout; `make docs` then writes the documents' tables anew."""
    count = 0
    for path in sorted(folder.rglob("*.json")):
        target = root / "benchmarks" / "baselines" / path.name if path.parent.name == "baselines" else root / "docs" / "benchmarks" / path.name
        if path.parent.name != "baselines":
            record.read(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        print(target.relative_to(root))
        count += 1
    print(f"{count} files; now run `make docs`")
    return 0 if count else 1


def main(words: Optional[list[str]] = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path, help="folder or archive of programs, libraries, kernels and wheels")
    parser.add_argument("--out", type=Path, help="folder of the results")
    parser.add_argument("--minutes", type=float, default=7.5, help="for everything")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--works", nargs="+", default=list(WORKS), metavar="MODEL:WIDTHxHEIGHT:IMAGES")
    parser.add_argument("--device", default="cuda", help="cuda or cpu")
    parser.add_argument("--dtype", default="f16", choices=("f16", "bf16", "f32"))
    parser.add_argument("--jobs", type=int, default=4, help="models that torch.compile works on at once")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--compile-share", type=float, default=0.4, help="of the time, for torch.compile at most")
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    parser.add_argument("--root", type=Path, default=record.REPOSITORY, help="for --keep")
    args = parser.parse_args(words)
    if args.keep:
        return keep(args.keep, args.root)
    if args.out is None:
        parser.error("--out: expected a folder")
    if args.bundle and not args.bundle.exists():
        parser.error(f"--bundle: no file or folder {args.bundle}")
    args.out = args.out.resolve()
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gpu-record-") as folder:
        machine = Machine(args, Path(folder))
        machine.say(f"{machine.name}; driver {machine.driver()}; {machine.system}; commit {machine.commit}")
        try:
            run_parts(machine)
        finally:
            logs = args.out / "logs"
            for path in [*Path(folder).glob("logs/*.log"), *Path(folder).glob("*.log")]:
                logs.mkdir(exist_ok=True)
                shutil.copyfile(path, logs / path.name)
        print(parts.summary(args.out))
        for reason in sorted(set(machine.left_out)):
            print(f"left out: {reason}")
    return 0 if any(args.out.rglob("*.json")) else 1


if __name__ == "__main__":
    raise SystemExit(main())
