#!/usr/bin/env python3
"""Runs a ComfyUI checkout with integrations/comfyui in it: make test-comfyui COMFYUI_DIR=... [COMFYUI_PYTHON=...]

    tests/front_ends/run_comfyui.py DIR [--python PYTHON] [--checkpoint FILE] [--device cpu] [--only NAME] [--size N]
                                                                   [--steps N]

The real server starts headless in a folder of its own (nothing is written into the checkout), loads the node package, and draws
the same text-to-image workflow without our nodes and with each of them; pictures must agree (at least 50 dB of the 8-bit PNGs).
Then the examples of integrations/comfyui/workflows are drawn as the web page would send them, each against itself without our nodes,
and a long run of the Engine Sampler is interrupted. PYTHON has ComfyUI's requirements; it finds rocm_sd_ops installed, or in this
checkout through ROCM_SD_TORCH_LIBRARY. Without --checkpoint one in the shapes of SD 1.5 with random weights is made (2 GB, kept in
the system's temporary folder). Exit code 0: all agreed; 1: not, and the reason; 2: there is no checkout to test.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Sequence

from checkout_program import LEAST_DB, REPOSITORY, Failed, WebProgram, free_port, make_checkpoint, psnr

NODES = ("RocmSDAttention", "RocmSDOptimizeModel", "RocmSDVAE", "RocmSDEngineSampler", "RocmSDDoctor")


class Server(WebProgram):
    """A running ComfyUI over the folder `base`. poll: seconds between looks at whether a picture is there."""

    def __init__(self, checkout: Path, python: str, base: Path, device: str,
                 precision: Sequence[str] = ("--fp32-unet", "--fp32-vae", "--fp32-text-enc"), poll: float = 0.5) -> None:
        self.poll, port = poll, free_port()
        command = [python, "main.py", "--port", str(port), "--base-directory", str(base), "--disable-auto-launch", *precision,
                   *(["--cpu"] if device == "cpu" else [])]
        super().__init__(command, checkout, base / "server.log", port)

    def wait_until_up(self, seconds: float) -> dict:
        return self.wait_for("/object_info", seconds)

    def start(self, graph: dict) -> str:
        return self.request("/prompt", {"prompt": graph})["prompt_id"]

    def finish(self, prompt: str, seconds: float) -> dict:
        """The prompt's entry of the history, once it is there."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            history = self.request(f"/history/{prompt}")
            if prompt in history:
                return history[prompt]
            self.check_alive()
            time.sleep(self.poll)
        raise Failed(f"no picture after {seconds:.0f} s:\n{self.last_lines()}")

    def draw(self, graph: dict, seconds: float) -> Any:
        entry = self.finish(self.start(graph), seconds)
        if entry["status"]["status_str"] != "success":
            raise Failed(json.dumps(entry["status"])[:3000])
        picture = next(image for output in entry["outputs"].values() for image in output.get("images", []))
        query = "&".join(f"{k}={picture[k]}" for k in ("filename", "subfolder", "type"))
        return self.request(f"/view?{query}")


def workflow(checkpoint: str, size: int, steps: int) -> dict:
    """Text to image in ComfyUI's API form."""
    return {
        "ckpt": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": checkpoint}},
        "yes": {"class_type": "CLIPTextEncode", "inputs": {"text": "a cat on a chair", "clip": ["ckpt", 1]}},
        "no": {"class_type": "CLIPTextEncode", "inputs": {"text": "a dog", "clip": ["ckpt", 1]}},
        "latent": {"class_type": "EmptyLatentImage", "inputs": {"width": size, "height": size, "batch_size": 1}},
        "sample": {"class_type": "KSampler", "inputs": {
            "model": ["ckpt", 0], "seed": 7, "steps": steps, "cfg": 5.0, "sampler_name": "euler", "scheduler": "normal",
            "positive": ["yes", 0], "negative": ["no", 0], "latent_image": ["latent", 0], "denoise": 1.0}},
        "decode": {"class_type": "VAEDecode", "inputs": {"samples": ["sample", 0], "vae": ["ckpt", 2]}},
        "save": {"class_type": "SaveImage", "inputs": {"images": ["decode", 0], "filename_prefix": "test"}},
    }


def variants(graph: dict) -> dict[str, dict]:
    """The workflow with each of our nodes in it."""
    def changed(**nodes: dict) -> dict:
        copy = json.loads(json.dumps(graph))
        for name, node in nodes.items():
            copy.setdefault(name, {}).update(node)
        return copy

    def model(**node: Any) -> dict:
        sample = dict(graph["sample"], inputs=graph["sample"]["inputs"] | {"model": ["ours", 0]})
        return changed(ours=node, sample=sample)

    made = {"ROCm Optimized Attention": model(class_type="RocmSDAttention", inputs={"model": ["ckpt", 0]})}
    for level, engine in (("performance", "off"), ("memory", "off"), ("performance", "on")):
        made[f"ROCm Optimize Model, {level}, engine {engine}"] = model(
            class_type="RocmSDOptimizeModel", inputs={"model": ["ckpt", 0], "level": level, "engine": engine})
    made["ROCm Engine Sampler"] = changed(sample={"class_type": "RocmSDEngineSampler"})
    for bands in (1, 3):
        made[f"ROCm Optimized VAE, {bands} bands"] = changed(
            ours={"class_type": "RocmSDVAE", "inputs": {"vae": ["ckpt", 2], "bands": bands}},
            decode={"inputs": {"samples": ["sample", 0], "vae": ["ours", 0]}})
    made["ROCm Optimized VAE, tiled decoding"] = changed(
        ours={"class_type": "RocmSDVAE", "inputs": {"vae": ["ckpt", 2], "bands": 1}},
        decode={"class_type": "VAEDecodeTiled", "inputs": {"samples": ["sample", 0], "vae": ["ours", 0], "tile_size": 64,
                                                           "overlap": 0, "temporal_size": 64, "temporal_overlap": 8}})
    return made


def api_form(page: dict, known: dict) -> dict:
    """A workflow as the web page saves it in the form that it sends: widgets' values by name, links by node. known: /object_info."""
    links = {number: [str(source), slot] for number, source, slot, *_ in page["links"]}
    graph = {}
    for node in page["nodes"]:
        if node["type"] not in known:
            raise Failed(f"the server has no node {node['type']}")
        inputs = {i["name"]: links[i["link"]] for i in node["inputs"]}
        values = list(node.get("widgets_values", []))
        offered = known[node["type"]]["input"]
        for name, spec in (offered.get("required", {}) | offered.get("optional", {})).items():
            is_widget = isinstance(spec[0], list) or spec[0] in ("INT", "FLOAT", "STRING", "BOOLEAN", "COMBO")
            if name in inputs or not is_widget:
                continue
            if not values:
                raise Failed(f"{node['type']}: no value for {name}")
            inputs[name] = values.pop(0)
            if len(spec) > 1 and spec[1].get("control_after_generate"):
                values.pop(0)
        if values:
            raise Failed(f"{node['type']}: values left over: {values}")
        graph[str(node["id"])] = {"class_type": node["type"], "inputs": inputs}
    return graph


def without_ours(graph: dict) -> dict:
    """The same with ComfyUI's sampler for ours, and past our other nodes to what they were given."""
    passed = {name: next(v for k, v in node["inputs"].items() if k in ("model", "vae")) for name, node in graph.items()
              if node["class_type"] in NODES and node["class_type"] != "RocmSDEngineSampler"}
    return {name: {"class_type": node["class_type"].replace("RocmSDEngineSampler", "KSampler"),
                   "inputs": {k: passed.get(v[0], v) if isinstance(v, list) else v for k, v in node["inputs"].items()}}
            for name, node in graph.items() if name not in passed}


def check_examples(server: Server, known: dict, checkpoint: str, size: int, steps: int) -> list[str]:
    problems = []
    for file in sorted((REPOSITORY / "integrations/comfyui/workflows").glob("*.json")):
        try:
            graph = api_form(json.loads(file.read_text()), known)
            for node in graph.values():
                small = {"ckpt_name": checkpoint, "width": size, "height": size, "steps": steps}
                node["inputs"].update({k: v for k, v in small.items() if k in node["inputs"]})
            db = psnr(server.draw(graph, 1800), server.draw(without_ours(graph), 1800))
        except Failed as failed:
            problems.append(f"{file.name}: {failed}")
            continue
        print(f"{file.name}: {db:.1f} dB", flush=True)
        if db < LEAST_DB:
            problems.append(f"{file.name}: {db:.1f} dB, expected at least {LEAST_DB}")
    return problems


def check(server: Server, checkpoint: str, size: int, steps: int, only: str) -> list[str]:
    """Draws everything and prints a line each; what failed."""
    known = server.wait_until_up(600)
    missing = [name for name in NODES if name not in known]
    if missing:
        raise Failed(f"the server has not loaded {', '.join(missing)}:\n{server.last_lines()}")
    print(f"the server is up with {len(known)} nodes, ours among them", flush=True)
    doctor = {"doctor": {"class_type": "RocmSDDoctor", "inputs": {}}}
    told = server.finish(server.start(doctor), 600)["outputs"]["doctor"]["text"][0]
    print("ROCm Doctor:", told.splitlines()[0], flush=True)
    graph = workflow(checkpoint, size, steps)
    begin = time.monotonic()
    want = server.draw(graph, 1800)
    print(f"without our nodes: {time.monotonic() - begin:.1f} s (with loading)", flush=True)
    problems = []
    for name, changed in variants(graph).items():
        if only not in name:
            continue
        begin = time.monotonic()
        try:
            db = psnr(server.draw(changed, 1800), want)
        except Failed as failed:
            problems.append(f"{name}: {failed}")
            print(f"{name}: failed", flush=True)
            continue
        print(f"{name}: {db:.1f} dB, {time.monotonic() - begin:.1f} s", flush=True)
        if db < LEAST_DB:
            problems.append(f"{name}: {db:.1f} dB, expected at least {LEAST_DB}")
    if not only:
        problems += check_examples(server, known, checkpoint, size, steps)
    long = variants(workflow(checkpoint, size, 5000))["ROCm Engine Sampler"]
    prompt = server.start(long)
    time.sleep(5)
    server.request("/interrupt", {})
    messages = json.dumps(server.finish(prompt, 300)["status"])
    print("interrupted:", "execution_interrupted" in messages, flush=True)
    if "execution_interrupted" not in messages:
        problems.append(f"the Engine Sampler was not interrupted: {messages[:300]}")
    # Nothing in this workflow needs the model's own layers where the engine was asked for.
    problems += [line for line in server.log.read_text(errors="replace").splitlines() if "the engine leaves" in line]
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", nargs="?", default="", help="ComfyUI's folder")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--device", default="cpu", choices=["cpu", "gpu"])
    parser.add_argument("--only", default="", help="the nodes whose names contain this")
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=2)
    args = parser.parse_args()
    checkout = Path(args.checkout).resolve()
    if not args.checkout or not (checkout / "main.py").is_file():
        print("not run: no ComfyUI checkout: make test-comfyui COMFYUI_DIR=/path/to/ComfyUI", file=sys.stderr)
        return 2
    checkpoint = (args.checkpoint or make_checkpoint()).resolve()
    with tempfile.TemporaryDirectory(prefix="rocm-sd-comfyui-") as folder:
        base = Path(folder)
        for name in ("custom_nodes", "models/checkpoints", "input", "output", "temp", "user"):
            (base / name).mkdir(parents=True)
        (base / "custom_nodes" / "rocm_sd").symlink_to(REPOSITORY / "integrations" / "comfyui")
        (base / "models" / "checkpoints" / checkpoint.name).symlink_to(checkpoint)
        server = Server(checkout, args.python, base, args.device)
        try:
            problems = check(server, checkpoint.name, args.size, args.steps, args.only)
        except Failed as failed:
            problems = [str(failed)]
        finally:
            server.stop()
        if problems and os.environ.get("ROCM_SD_KEEP_LOG"):
            Path(os.environ["ROCM_SD_KEEP_LOG"]).write_text(server.log.read_text(errors="replace"))
    for problem in problems:
        print("FAILED:", problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
