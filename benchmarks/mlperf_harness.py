#!/usr/bin/env python3
"""MLPerf Inference's text-to-image benchmark (Stable Diffusion XL) on the real LoadGen.

    pip install mlcommons-loadgen
    benchmarks/mlperf_harness.py --library build/cuda/librocm_sd.so --model sdxl-base --scenario SingleStream --out results

By the benchmark's rules: 20 Euler steps, guidance 8, the rules' negative prompt, 1024 x 1024, and one latent for all prompts,
PyTorch's CPU noise of seed 0; so each query is a picture of its own. Prompts are captions of COCO that you give (--captions:
MLPerf's captions_source.tsv, or one prompt a line), else the few of benchmarks/mlperf_prompts.txt, which make no valid result.

LoadGen times and judges; its logs are in --out, beside summary.json. --mode accuracy draws each prompt once into
--out/pictures and computes FID and CLIP score (benchmarks/picture_scores.py) with weights that you give: --inception and --statistics
(MLPerf's val2014.npz), --clip; --no-scores only draws. This is a harness, not a submission: no audit has seen it.
"""

from __future__ import annotations

import argparse
import json
import queue
import sys
import threading
import time
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))
from captions import read_captions  # noqa: E402

NEGATIVE = "normal quality, low quality, worst quality, low res, blurry, nsfw, nude"  # text_to_image in mlcommons/inference
SCENARIOS = ("SingleStream", "Offline", "Server")
# What the closed division accepts of 5000 captions (mlcommons/inference, tools/submission/submission_checker.py).
ACCEPTED = {"fid": (23.01085758, 23.95007626), "clip_score": (31.68631873, 31.81331801)}


class Sut:
    """The system under test: queries wait in line for one pipeline on a thread of its own."""

    def __init__(self, lg, draw, captions: list[tuple[str, str]], keep=None):
        self.lg, self.draw, self.captions, self.keep = lg, draw, captions, keep
        self.queue: queue.Queue = queue.Queue()
        self.latencies: list[float] = []
        self.failure: BaseException | None = None
        self.worker = threading.Thread(target=self.work, daemon=True)
        self.worker.start()

    def issue(self, samples) -> None:
        now = time.monotonic()
        for sample in samples:
            self.queue.put((sample.id, sample.index, now))

    def flush(self) -> None:
        pass

    def work(self) -> None:
        while (item := self.queue.get()) is not None:
            identity, index, asked = item
            picture = None
            if self.failure is None:
                try:
                    picture = self.draw(self.captions[index][1])
                    if self.keep:
                        self.keep(self.captions[index][0], picture)
                except BaseException as error:  # LoadGen waits for every answer: the rest are empty, and main() tells
                    self.failure = error
            self.latencies.append(time.monotonic() - asked)
            data = np.ascontiguousarray(picture if picture is not None else np.zeros(1, np.uint8))
            self.lg.QuerySamplesComplete([self.lg.QuerySampleResponse(identity, data.ctypes.data, data.nbytes)])

    def close(self) -> None:
        self.queue.put(None)
        self.worker.join()


def settings_of(lg, args):
    settings = lg.TestSettings()
    settings.scenario = getattr(lg.TestScenario, args.scenario)
    settings.mode = lg.TestMode.AccuracyOnly if args.mode == "accuracy" else lg.TestMode.PerformanceOnly
    if args.config:
        for scenario in (args.scenario, "*"):
            settings.FromConfig(str(args.config), "stable-diffusion-xl", scenario)
    settings.min_duration_ms = int(1000 * args.least_seconds)
    if args.queries:
        settings.min_query_count = settings.max_query_count = args.queries
    if args.rate:
        settings.server_target_qps = settings.offline_expected_qps = args.rate
    if args.scenario == "Server":
        settings.server_target_latency_ns = int(args.latency * 1e9)
    return settings


def run(lg, args, draw, captions: list[tuple[str, str]]) -> dict:
    """One test; LoadGen's logs go to args.out. Raises what drawing raised."""
    args.out.mkdir(parents=True, exist_ok=True)
    keep = None
    if args.mode == "accuracy":
        from PIL import Image
        folder = args.out / "pictures"
        folder.mkdir(exist_ok=True)

        def keep(name: str, picture: np.ndarray) -> None:
            Image.fromarray(picture).save(folder / f"{name}.png")

    sut = Sut(lg, draw, captions, keep)
    logs = lg.LogSettings()
    logs.log_output.outdir = str(args.out)
    logs.log_output.copy_summary_to_stdout = False
    logs.enable_trace = False
    handle = lg.ConstructSUT(sut.issue, sut.flush)
    library = lg.ConstructQSL(len(captions), min(len(captions), args.samples_in_memory), lambda _: None, lambda _: None)
    begin = time.monotonic()
    try:
        lg.StartTestWithLogSettings(handle, library, settings_of(lg, args), logs)
    finally:
        lg.DestroyQSL(library)
        lg.DestroySUT(handle)
        sut.close()
    if sut.failure is not None:
        raise sut.failure
    seconds = time.monotonic() - begin
    ordered = sorted(sut.latencies)
    summary = {"scenario": args.scenario, "mode": args.mode, "queries": len(ordered), "seconds": seconds,
               "pictures_per_second": len(ordered) / seconds, "steps": args.steps, "guidance": args.guidance,
               "latency_seconds": {"p50": ordered[len(ordered) // 2], "p90": ordered[int(0.9 * (len(ordered) - 1))],
                                   "max": ordered[-1]},
               "loadgen": verdict(args.out / "mlperf_log_summary.txt")}
    (args.out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    return summary


def verdict(path: Path) -> dict[str, str]:
    """What LoadGen's own summary says of the result."""
    wanted = ("Result is", "Samples per second", "90.0th percentile latency (ns)", "Completed samples per second",
              "Min duration satisfied", "Min queries satisfied")
    lines = path.read_text().splitlines() if path.exists() else []
    pairs = (line.split(":", 1) for line in lines if ":" in line)
    return {name.strip(): value.strip() for name, value in pairs if name.strip() in wanted}


def check_scores(args) -> None:
    """Refuses before the first of 5000 pictures is drawn, not after the last."""
    if args.mode != "accuracy" or args.no_scores:
        return
    import picture_scores

    if not args.inception or not (args.statistics or args.reference) or not args.clip:
        raise SystemExit("error: accuracy needs weights that are not shipped: --inception FILE with --statistics FILE (or "
                         "--reference FOLDER), and --clip FOLDER; --no-scores only draws the pictures")
    try:
        picture_scores.load_inception(args.inception)
        if args.statistics:
            picture_scores.read_statistics(args.statistics)
    except picture_scores.Refused as refused:
        raise SystemExit(f"error: {refused}") from None
    if not (args.clip / "config.json").is_file():
        raise SystemExit(f"error: {args.clip}: expected a transformers folder of a CLIP model")


def score(args, captions: list[tuple[str, str]]) -> dict:
    """FID and CLIP score of what run() drew, and whether they are in the range that the closed division accepts."""
    import picture_scores

    pictures = args.out / "pictures"
    try:
        scores = picture_scores.fid(pictures, args.inception, args.statistics, args.reference, args.score_device)
        scores |= picture_scores.clip_score(pictures, args.clip, dict(captions), args.score_device)
    except picture_scores.Refused as refused:
        raise SystemExit(f"error: {refused}") from None
    if scores["pictures"] == 5000:  # the ranges are of that many
        scores["accepted"] = {name: low <= scores[name] <= high for name, (low, high) in ACCEPTED.items()}
    return scores


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=Path, required=True, help="librocm_sd.so")
    parser.add_argument("--model", required=True, help="a checkpoint: a file or a Diffusers folder")
    parser.add_argument("--device", default="auto", help="as rocm-sd takes it [auto]")
    parser.add_argument("--dtype", default="auto", help="auto, f32, f16 or bf16 [auto]")
    parser.add_argument("--scenario", choices=SCENARIOS, default="SingleStream")
    parser.add_argument("--mode", choices=("performance", "accuracy"), default="performance", help="[performance]")
    parser.add_argument("--captions", type=Path, default=FOLDER / "mlperf_prompts.txt", help="COCO's captions_source.tsv, or a prompt a line")
    parser.add_argument("--out", type=Path, required=True, help="folder of LoadGen's logs, summary.json and pictures")
    parser.add_argument("--config", type=Path, help="MLPerf's mlperf.conf or user.conf")
    parser.add_argument("--side", type=int, default=1024, help="pixels [1024]")
    parser.add_argument("--steps", type=int, default=20, help="[20]")
    parser.add_argument("--guidance", type=float, default=8.0, help="[8]")
    parser.add_argument("--queries", type=int, help="exactly so many [LoadGen's minimum]")
    parser.add_argument("--least-seconds", type=float, default=600, help="of a performance run [600]")
    parser.add_argument("--rate", type=float, help="queries a second: Server's target, Offline's expectation")
    parser.add_argument("--latency", type=float, default=20, help="Server's bound in seconds [20]")
    parser.add_argument("--samples-in-memory", type=int, default=5000, help="prompts that LoadGen draws from [5000]")
    parser.add_argument("--inception", type=Path, help="Inception v3's weights as pytorch-fid has them")
    parser.add_argument("--statistics", type=Path, help="mu and sigma of the real pictures, .npz")
    parser.add_argument("--reference", type=Path, help="the real pictures themselves")
    parser.add_argument("--clip", type=Path, help="transformers folder of a CLIP model (MLPerf's: ViT-B/32)")
    parser.add_argument("--score-device", default="cpu", help="PyTorch's name")
    parser.add_argument("--no-scores", action="store_true", help="accuracy mode only draws the pictures")
    return parser.parse_args(argv)


def main() -> None:
    args = parse()
    try:
        import mlperf_loadgen as lg
    except ImportError:
        raise SystemExit("LoadGen is missing: pip install mlcommons-loadgen") from None
    from engine import Engine, EngineError

    captions = read_captions(args.captions)
    check_scores(args)
    try:
        with Engine(args.library, model=args.model, device=args.device, dtype=args.dtype) as engine:
            def draw(prompt: str) -> np.ndarray:
                return engine.draw(prompt=prompt, negative_prompt=NEGATIVE, width=args.side, height=args.side, steps=args.steps,
                                   cfg_scale=args.guidance, sampler="euler", seed=0, rng="cpu", plain_prompt="true")[0]

            draw(captions[0][1])  # plans, lays weights out, captures
            summary = run(lg, args, draw, captions)
        if args.mode == "accuracy" and not args.no_scores:
            summary["accuracy"] = score(args, captions)
            (args.out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
        print(json.dumps(summary, indent=2))
    except EngineError as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    main()
