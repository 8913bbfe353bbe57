"""The parts of benchmarks/gpu_record.py: what is run, and the tables that come of it."""

from __future__ import annotations

import json
import re
import site
import statistics
import sys
import sysconfig
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

import record
from bench_gate import device_of, product_of
from peer_process import PeerProcess

if TYPE_CHECKING:
    from gpu_record import Machine

HERE = Path(__file__).resolve().parent
PLAIN = ("eager", "channels_last", "optimized")  # share one process
TITLES = {"eager": "Diffusers, eager", "channels_last": "Diffusers, eager channels_last",
          "compiled": "Diffusers, torch.compile (reduce-overhead, channels_last)", "optimized": "optimize_sd_model"}
MODELS = {"sd15-unet": "SD 1.5 UNet", "sd21-unet": "SD 2.1 UNet", "sdxl-unet": "SDXL UNet", "vae": "VAE decoder", "tiny-unet": "tiny UNet",
          "tiny-vae": "tiny VAE decoder"}


# ---- helpers ----

def slug(name: str) -> str:
    """"NVIDIA H200" -> "h200", "AMD Radeon RX 7900 XTX" -> "radeon_rx_7900_xtx"."""
    return re.sub(r"[^a-z0-9]+", "_", re.sub(r"\b(nvidia|amd|inc)\b", "", name.lower())).strip("_") or "device"


def json_of(text: Optional[str], otherwise: str) -> Any:
    """The last line that is JSON."""
    for line in reversed((text or otherwise).splitlines()):
        try:
            return json.loads(line)
        except ValueError:
            continue
    return json.loads(otherwise)


def json_file(path: Path) -> Optional[dict]:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def vendor_folders() -> list[str]:
    """Where pip puts cuBLASLt and cuDNN: nvidia/*/lib beside PyTorch."""
    places = {sysconfig.get_path("purelib"), *site.getsitepackages(), site.getusersitepackages()}
    return sorted({str(p) for place in places for p in Path(place).glob("nvidia/*/lib") if p.is_dir()})


def title_of(work: str) -> str:
    model, size, images = work.split(":")
    width, height = size.split("x")
    batch = "" if images == "1" else f", {images} images"
    return f"{MODELS[model]}, {width} x {height}{batch}"


# ---- models ----

class Work:
    """One model in one size: its processes, and the times of each implementation."""

    def __init__(self, machine: Machine, text: str):
        self.machine, self.text = machine, text
        self.peers: list[PeerProcess] = []
        self.waited: dict[str, list[float]] = {}
        self.in_turn: dict[str, list[float]] = {}
        self.own: dict = {}

    def start(self, implementations: tuple[str, ...], seconds: float) -> PeerProcess:
        args = self.machine.args
        peer = PeerProcess(self.text, list(implementations), self.machine.folder, args.device, args.dtype, seconds, self.machine.env)
        self.peers.append(peer)
        return peer

    def psnr(self, name: str) -> Optional[float]:
        return next((peer.ready[name].get("psnr") for peer in self.peers if name in peer.ready), None)

    def measure(self, rounds: int) -> None:
        """The implementations by turns, each for about half a second a round."""
        for _ in range(rounds):
            for peer in self.peers:
                for name in list(peer.ready):
                    if self.machine.left() < 5:
                        return
                    ms = statistics.median(self.waited[name]) if name in self.waited else peer.ready[name]["ms"]
                    count = int(min(50, max(8, 500 / max(ms, 0.01))))
                    answer = peer.measure(name, count, min(60.0, self.machine.left()))
                    if answer is None:
                        peer.ready.pop(name, None)
                        continue
                    self.waited.setdefault(name, []).extend(answer["waited_ms"])
                    self.in_turn.setdefault(name, []).append(answer["in_turn_ms"])

    def measure_own(self) -> None:
        program = self.machine.program("bench_model_gpu")
        if program is None or self.text.startswith("tiny"):
            return
        report = self.machine.folder / "own.json"
        report.unlink(missing_ok=True)
        self.machine.run([program, self.machine.args.device, self.machine.args.dtype, "--json", report, self.text], 60,
                         f"bench_model_gpu {self.text}".replace(":", "_"))
        rows = (json_file(report) or {}).get("rows", [])
        self.own = rows[0] if rows else {}
        if "failure" in self.own:
            self.machine.left_out.append(f"bench_model_gpu {self.text}: {self.own['failure']}")
            self.own = {}

    def close(self) -> None:
        for peer in self.peers:
            for name, why in peer.failures.items():
                self.machine.left_out.append(f"{TITLES.get(name, name)}, {title_of(self.text)}: {why}")
            self.machine.left_out.extend(f"{title_of(self.text)}: {note}" for note in peer.notes)
            peer.close()

    def row(self) -> dict:
        turn = {name: statistics.median(times) for name, times in self.in_turn.items()}
        best = min((turn[name] for name in ("eager", "channels_last", "compiled") if name in turn), default=None)
        own = self.own.get("sustained_ms")
        row = {"work": title_of(self.text), "own_ms": own, "optimized_ms": turn.get("optimized"), "compiled_ms": turn.get("compiled"),
               "channels_last_ms": turn.get("channels_last"), "eager_ms": turn.get("eager"), "own_ahead": record.faster(best, own),
               "optimized_ahead": record.faster(best, turn.get("optimized")), "psnr": self.psnr("optimized"),
               "held_gb": self.own["held_bytes"] * 1e-9 if "held_bytes" in self.own else None}
        return {key: value for key, value in row.items() if value is not None}

    def waited_row(self) -> dict:
        row = {"work": title_of(self.text), "own_ms": self.own.get("ms"), "joules": self.own.get("joules"),
               "psnr_compiled": self.psnr("compiled")}
        row |= {f"{name}_ms": statistics.median(times) for name, times in self.waited.items()}
        return {key: value for key, value in row.items() if value is not None}


def ms(title: str) -> dict:
    return {"title": title, "significant": 3}


def model_tables(works: list[Work]) -> dict:
    done = [work for work in works if work.in_turn or work.own]
    times = {"title": "", "digits": 2, "unit": "x"}
    return {
        "models": record.table(
            {"work": "f16, with guidance", "own_ms": ms("`rocm-sd`, ms"), "optimized_ms": ms("`optimize_sd_model`, ms"),
             "compiled_ms": ms("torch.compile, ms"), "channels_last_ms": ms("eager channels_last, ms"), "eager_ms": ms("eager, ms"),
             "own_ahead": times | {"title": "`rocm-sd` against the fastest of PyTorch"},
             "optimized_ahead": times | {"title": "`optimize_sd_model` against it"},
             "psnr": {"title": "PSNR of `optimize_sd_model` to eager", "digits": 1, "unit": " dB"},
             "held_gb": {"title": "device memory, `rocm-sd`", "digits": 2, "unit": " GB"}}, [work.row() for work in done]),
        "waited": record.table(
            {"work": "f16, each call waited for", "own_ms": ms("`rocm-sd`, ms"), "optimized_ms": ms("`optimize_sd_model`, ms"),
             "compiled_ms": ms("torch.compile, ms"), "channels_last_ms": ms("eager channels_last, ms"), "eager_ms": ms("eager, ms"),
             "joules": {"title": "energy of a call, `rocm-sd`", "significant": 3, "unit": " J"},
             "psnr_compiled": {"title": "PSNR of torch.compile to eager", "digits": 1, "unit": " dB"}},
            [work.waited_row() for work in done])}


def prepare(machine: Machine, works: list[Work]) -> None:
    """Starts all processes of PyTorch, `jobs` at once, the first models' compilers early; ends when all are prepared or at the limit."""
    if not machine.peer:
        return
    args = machine.args
    limit = args.compile_share * 60 * args.minutes
    compiled = [] if args.no_compile else [(work, ("compiled",)) for work in works]
    plain = [(work, PLAIN) for work in works]
    waiting = [*plain[:1], *compiled[:3], *plain[1:], *compiled[3:]]
    busy: list[PeerProcess] = []
    end = time.monotonic() + limit
    while (waiting or busy) and time.monotonic() < end:
        while waiting and len(busy) < args.jobs:
            work, implementations = waiting.pop(0)
            busy.append(work.start(implementations, limit))
        for peer in busy:
            peer.poll()
        done = [peer for peer in busy if peer.prepared]
        for peer in done:
            machine.say(f"{peer.work} {','.join(peer.ready) or 'nothing'} ready" + "".join(f"; {n}: {w}" for n, w in peer.failures.items()))
        busy = [peer for peer in busy if not peer.prepared]
        time.sleep(0.1)
    for peer in busy:
        peer.give_up(f"not ready when torch.compile's time ({limit:.0f} s) was over")
        machine.say(f"{peer.work} {','.join(peer.implementations)}: not ready in time")
    for work, implementations in waiting:  # never started: the plain ones are quick
        if implementations == PLAIN:
            continue
        machine.left_out.append(f"{TITLES['compiled']}, {title_of(work.text)}: not started before torch.compile's time was over")


def models(machine: Machine) -> None:
    works = [Work(machine, text) for text in machine.args.works]
    prepare(machine, works)
    peers = [title for name, title in TITLES.items() if name != "optimized"]
    with machine.clocked() as log:
        for number, work in enumerate(works):
            reserve = 20 if len(machine.args.parts) > 1 else 5
            if machine.left() < reserve:
                machine.left_out.append(f"{title_of(work.text)}: no time was left")
            else:
                if machine.peer and not any(set(peer.ready) & set(PLAIN) for peer in work.peers):
                    peer = work.start(PLAIN, 40)
                    end = time.monotonic() + 60
                    while not peer.prepared and time.monotonic() < min(end, machine.end):
                        peer.poll()
                        time.sleep(0.05)
                    if not peer.prepared:
                        peer.give_up("not ready after 60 s")
                work.measure(1)
                work.measure_own()
                work.measure(1)
            work.close()
            machine.say(f"{number + 1}/{len(works)} {work.text}: {json.dumps(record.rounded(work.row()))}")
            machine.write("models", machine.command("models"), log.summary(), peers if machine.peer else [], model_tables(works))


# ---- the baseline of make bench-gate ----

def gate(machine: Machine) -> None:
    program = machine.program("rocm-sd")
    if program is None:
        machine.left_out.append("gate: the bundle has no rocm-sd")
        return
    report = machine.folder / "gate.json"
    if machine.run([program, "bench", "--model", "sd15", "--device", machine.args.device, "--top", 24, "--seconds", 0.4, "--json", report,
                    "--quiet"], 90, "gate") is None:
        return
    data = json_file(report)
    if data is None:
        machine.left_out.append("gate: rocm-sd wrote no report")
        return
    target = machine.out / "baselines" / f"{product_of(device_of(data['device']))}.json"
    target.parent.mkdir(exist_ok=True)
    data["command"] = "rocm-sd bench --model sd15 --top 24 --seconds 0.4"
    target.write_text(record.dump(data), encoding="utf-8")


# ---- whole images ----

def pictures(machine: Machine) -> None:
    """A checkpoint of SD 1.5 with random weights, drawn by each program in turns."""
    if not machine.peer:
        machine.left_out.append("pictures: there is no Diffusers to make a checkpoint with")
        return
    model, out = machine.folder / "sd15-random", machine.folder / "comparison"
    tiny = ["--tiny", "--small-vocab"] if machine.args.device == "cpu" else []
    if machine.run([sys.executable, record.REPOSITORY / "tools" / "checkpoints" / "make_random_checkpoint.py", "sd15", model, *tiny], 120,
                   "make_random_checkpoint") is None:
        return
    machine.say("the checkpoint is written")
    programs = "engine,diffusers,channels_last,optimized" + ("" if machine.args.no_compile else ",compile")
    words = ["-m", model, "--steps", 20, "--guidance", 7.5, "--rounds", 5, "--size", 64 if tiny else 512, "--programs", programs, "--out", out,
             "--limit", max(20.0, machine.left() - 20), *(["--device", "cpu"] if machine.args.device == "cpu" else [])]
    with machine.clocked() as log:
        machine.run([sys.executable, HERE / "picture_comparison.py", *words], machine.left() - 5, "picture_comparison")
    report = json_file(out / "comparison.json")
    if report is None:
        return
    machine.left_out.extend(f"pictures: {reason}" for reason in report.get("left_out", []))
    from comparison_report import record_tables

    tables, plots = record_tables(report)
    machine.write("pictures", machine.command("pictures"), log.summary(), [p["name"] for p in report["programs"]], tables, plots=plots,
                  work=f"SD 1.5, {report['width']} x {report['height']}, {report['steps']} steps, guidance {report['guidance']}, Euler, "
                       f"random weights, {report['rounds']} rounds, alternated")


# ---- each op beside the vendor's library ----

def ops(machine: Machine) -> None:
    program = machine.program("rocm-sd")
    if program is None:
        machine.left_out.append("ops: the bundle has no rocm-sd")
        return
    rows, clocks = [], None
    for model, title in (("sd15", "SD 1.5, 512 x 512"), ("sdxl", "SDXL, 1024 x 1024")):
        report = machine.folder / f"ops-{model}.json"
        seconds = max(10.0, (machine.left() - 10) / (2 if model == "sd15" else 1))
        text = machine.run([program, "bench", "--model", model, "--device", machine.args.device, "--op", "linear,conv2d,attention", "--impl",
                            "chosen,cublaslt,cudnn,hipblaslt,rocblas,miopen", "--seconds", 0.05, "--json", report, "--quiet"], seconds, f"ops-{model}")
        data = json_file(report)
        if text is None or data is None:
            continue
        clocks = clocks or data.get("clocks")
        rows += op_rows(title, data)
        machine.write("ops", machine.command("ops"), clocks, ["cuBLASLt, cuDNN; or hipBLASLt, rocBLAS, MIOpen"], op_tables(rows))


def op_rows(title: str, report: dict) -> list[dict]:
    """The sum of an image's launches, over the problems that both have been timed for."""
    sums: dict[str, dict[str, float]] = {}
    for row in report["rows"]:
        if not row.get("chosen") or "median_us" not in row:
            continue
        s = sums.setdefault(row["op"], {"all": 0.0, "ours": 0.0, "peer": 0.0, "best": 0.0, "problems": 0, "compared": 0, "ahead": 0})
        ours = row["median_us"] * row["launches"] * 1e-3
        s["all"] += ours
        s["problems"] += 1
        if "ratio_to_peer" in row:
            peer = ours * row["ratio_to_peer"]
            s["ours"] += ours
            s["peer"] += peer
            s["best"] += min(ours, peer)
            s["compared"] += 1
            s["ahead"] += row["ratio_to_peer"] >= 1
    return [{"work": f"{title}: {op}", "problems": s["problems"], "all_ms": s["all"], "compared": s["compared"], "ours_ms": s["ours"],
             "peer_ms": s["peer"], "ratio": s["peer"] / s["ours"] if s["ours"] else None, "ahead": f"{s['ahead']} of {s['compared']}"}
            for op, s in sums.items()]


def op_tables(rows: list[dict]) -> dict:
    return {"ops": record.table(
        {"work": "launches of one image, 20 steps", "problems": "shapes", "all_ms": ms("`rocm-sd`, all shapes, ms"), "compared": "shapes that the library takes",
         "ours_ms": ms("`rocm-sd`, these, ms"), "peer_ms": ms("the library, these, ms"),
         "ratio": {"title": "`rocm-sd` against the library", "digits": 2, "unit": "x"}, "ahead": "shapes where `rocm-sd` is as fast or faster"}, rows)}


# ---- what is printed last ----

def summary(out: Path) -> str:
    """The tables of all files, short, for a terminal."""
    from tables import table

    lines = []
    for path in sorted(out.glob("*.json")):
        data = json_file(path) or {}
        for name, t in data.get("tables", {}).items():
            lines += [f"== {path.name} {name}", *table(t)]
    lines += [f"== {path.relative_to(out)}: {len((json_file(path) or {}).get('rows', []))} rows" for path in sorted(out.glob("baselines/*.json"))]
    return "\n".join(lines)
