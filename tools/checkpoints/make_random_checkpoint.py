#!/usr/bin/env python3
"""Writes a checkpoint with random weights in the shapes of a real Stable Diffusion model (or a tiny one).

    tools/checkpoints/make_random_checkpoint.py sd15 out/sd15-random                            # a Diffusers folder, fp16
    tools/checkpoints/make_random_checkpoint.py sdxl out/sdxl-random.safetensors --dtype fp16   # an LDM single file

A tensor's values depend on (seed, component, name) alone, so that both layouts hold the same model. Weights are scaled by
1/sqrt(fan-in), gains lie around 1 and biases around 0, so that activations keep their size through the network.
Tensors are made by a few threads and written in turn: memory stays below that of the largest few.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import sys
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Callable, Iterator

import numpy as np
import torch

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tools" / "checkpoints"))
import ldm_names  # noqa: E402
from model_shapes import CLIP_VOCABULARY, KINDS, WIDE, shapes  # noqa: E402

DTYPES = {"fp32": (torch.float32, "F32"), "fp16": (torch.float16, "F16"), "bf16": (torch.bfloat16, "BF16"),
          "fp8": (torch.float8_e4m3fn, "F8_E4M3")}
_SAFETENSORS_NAME = dict(DTYPES.values()) | {torch.int64: "I64"}
_RESIDUAL_TAILS = ("to_out.0", "proj_out", "conv2", "ff.net.2", "fc2", "out_proj")  # scaled down: they add up

Entry = tuple[str, tuple[int, ...], torch.dtype, Callable[[], torch.Tensor]]


def random_tensor(seed: int, component: str, name: str, shape: tuple[int, ...]) -> torch.Tensor:
    digest = hashlib.sha256(f"{seed}/{component}/{name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))
    values = torch.randn(shape, generator=generator)
    if name.endswith("bias"):
        return values * 0.05
    if len(shape) == 1:
        return 1 + 0.1 * values
    if "embedding" in name and len(shape) == 2 and "linear" not in name:
        return values * (0.05 if "token" in name else 0.02)
    module = name.rpartition(".")[0]
    gain = 0.4 if module.endswith(_RESIDUAL_TAILS) else 1.0
    if module.endswith("conv_out"):
        gain = 0.35 if component == "vae" else 0.7  # pictures mostly within [-1,1]
    return values * (gain / math.sqrt(math.prod(shape[1:])))


def write_safetensors(path: Path, entries: list[Entry], metadata: dict[str, str]) -> None:
    """Header first, then each tensor as it is made; renamed into place when complete."""
    header: dict = {"__metadata__": metadata} if metadata else {}
    offset = 0
    for name, shape, dtype, _ in entries:
        size = math.prod(shape) * dtype.itemsize
        header[name] = {"dtype": _SAFETENSORS_NAME[dtype], "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    part = path.with_name(path.name + ".part")
    threads = min(8, os.cpu_count() or 1)
    with open(part, "wb") as file, ThreadPoolExecutor(threads) as pool:
        file.write(len(text).to_bytes(8, "little") + text)
        ahead: deque[Future] = deque()
        for entry in entries:
            ahead.append(pool.submit(_made, entry))
            if len(ahead) > threads:
                file.write(ahead.popleft().result().data)
        for future in ahead:
            file.write(future.result().data)
    os.replace(part, path)


def _made(entry: Entry) -> np.ndarray:
    name, shape, dtype, make = entry
    tensor = make().to(dtype).contiguous()
    assert tuple(tensor.shape) == shape, f"{name}: made {tuple(tensor.shape)}, announced {shape}"
    return tensor.reshape(-1).view(torch.uint8).numpy()


class RandomModel:
    """The tensors of one kind of model. vocabulary: the text encoders' number of rows. change: edits the specification
    (model_shapes.shapes) in place."""

    def __init__(self, kind: str, tiny: bool, seed: int, dtype: torch.dtype, vocabulary: int,
                 change: Callable[[dict], None] | None = None):
        import diffusers
        import transformers

        self.kind, self.seed, self.dtype, self.spec = kind, seed, dtype, shapes(kind, tiny)
        if change:
            change(self.spec)
        self.modules: dict[str, torch.nn.Module] = {}
        with torch.device("meta"):
            self.modules["unet"] = diffusers.UNet2DConditionModel(**self.spec["unet"])
            self.modules["vae"] = getattr(diffusers, self.spec["vae_class"])(**self.spec["vae"])
            for component, (class_name, _, config) in self.spec["text"].items():
                text = transformers.CLIPTextConfig(
                    vocab_size=vocabulary, bos_token_id=vocabulary - 2, eos_token_id=vocabulary - 1,
                    pad_token_id=vocabulary - 1, **config)
                self.modules[component] = getattr(transformers, class_name)(text)
        scheduler, config = self.spec["scheduler"]
        self.scheduler = getattr(diffusers, scheduler)(**config)
        self.diffusers_version = diffusers.__version__

    def shapes_of(self, component: str) -> dict[str, tuple[int, ...]]:
        """Names as checkpoints have them; transformers 5 leaves out CLIPTextModel's 'text_model.' prefix in memory."""
        found = {name: tuple(value.shape) for name, value in self.modules[component].state_dict().items()}
        if component.startswith("text_encoder"):
            found = {name if name.startswith(("text_model.", "text_projection.")) else "text_model." + name: shape
                     for name, shape in found.items()}
        return found

    def entry(self, component: str, name: str, shape: tuple[int, ...]) -> Entry:
        return (name, shape, self.dtype, lambda: random_tensor(self.seed, component, name, shape))

    # --- the Diffusers folder ---

    def write_folder(self, folder: Path, variant: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        dot = f".{variant}" if variant else ""
        for component, module in self.modules.items():
            target = folder / component
            target.mkdir(exist_ok=True)
            is_text = component.startswith("text_encoder")
            if is_text:
                module.config.architectures = [type(module).__name__]
                module.config.save_pretrained(target)
            else:
                module.save_config(target)
            file = target / (f"model{dot}.safetensors" if is_text else f"diffusion_pytorch_model{dot}.safetensors")
            write_safetensors(file, [self.entry(component, n, s) for n, s in self.shapes_of(component).items()],
                              {"format": "pt"})
        self.scheduler.save_config(folder / "scheduler")
        index = {"_class_name": self.spec["pipeline"], "_diffusers_version": self.diffusers_version,
                 **self.spec["pipeline_args"], "unet": ["diffusers", "UNet2DConditionModel"],
                 "vae": ["diffusers", self.spec["vae_class"]], "scheduler": ["diffusers", self.spec["scheduler"][0]]}
        if self.spec["pipeline"].startswith("StableDiffusionXL"):
            index |= {"text_encoder": [None, None], "tokenizer": [None, None], "image_encoder": [None, None],
                      "feature_extractor": [None, None]}
        else:
            index |= {"safety_checker": [None, None], "feature_extractor": [None, None],
                      "image_encoder": [None, None], "requires_safety_checker": False}
        for component, (class_name, _, _) in self.spec["text"].items():
            index[component] = ["transformers", class_name]
            index[component.replace("text_encoder", "tokenizer")] = ["transformers", "CLIPTokenizer"]
        (folder / "model_index.json").write_text(json.dumps(index, indent=2) + "\n")

    # --- the LDM single file ---

    def write_single_file(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        entries = list(self.single_file_entries())
        write_safetensors(path, entries, {"format": "pt"})

    def single_file_entries(self) -> Iterator[Entry]:
        for name, shape in self.shapes_of("unet").items():
            make = self.entry("unet", name, shape)[3]
            yield (ldm_names.unet_name(name, self.spec["unet"]), shape, self.dtype, make)
        for name, shape in self.shapes_of("vae").items():
            ldm, make = ldm_names.vae_name(name, self.spec["vae"]), self.entry("vae", name, shape)[3]
            if ldm_names.vae_is_convolution(ldm):
                yield (ldm, (*shape, 1, 1), self.dtype, lambda make=make: make()[:, :, None, None])
            else:
                yield (ldm, shape, self.dtype, make)
        family = "sd15" if self.kind.startswith("sd15") else self.kind
        for component, prefix in ldm_names.TEXT_PREFIX[family].items():
            if self.spec["text"][component][1] == "clip_l":
                for name, shape in self.shapes_of(component).items():
                    yield (prefix + name, shape, self.dtype, self.entry(component, name, shape)[3])
                positions = torch.arange(77)[None]  # [1,77]; real files carry this constant too
                yield (prefix + "text_model.embeddings.position_ids", (1, 77), torch.int64, lambda p=positions: p)
            else:
                yield from self.openclip_entries(component, prefix)

    def openclip_entries(self, component: str, prefix: str) -> Iterator[Entry]:
        table = self.shapes_of(component)
        config = self.spec["text"][component][2]
        layers, width = config["num_hidden_layers"], config["hidden_size"]
        unused = self.kind == "sd21v" and self.spec["unused_layer"]
        if unused:  # the file keeps OpenCLIP-H's last layer and projection, which SD 2 does not use
            last = f"text_model.encoder.layers.{layers - 1}."
            table |= {name.replace(last, f"text_model.encoder.layers.{layers}."): shape
                      for name, shape in table.items() if name.startswith(last)}
            layers += 1
        if self.kind == "sd21v" and self.spec["unused_projection"]:
            table["text_projection.weight"] = (width, width)
        for name, shape in table.items():
            ldm, make = ldm_names.openclip_name(name), self.entry(component, name, shape)[3]
            if ldm == "text_projection":  # x @ P in OpenCLIP, a Linear's weight [out,in] in transformers
                yield (prefix + ldm, shape[::-1], self.dtype, lambda make=make: make().T)
            elif ldm is not None:
                yield (prefix + ldm, shape, self.dtype, make)
        for layer in range(layers):
            for leaf in ("weight", "bias"):
                ldm, parts = ldm_names.openclip_fused(layer, leaf)
                makes = [self.entry(component, part, table[part])[3] for part in parts]
                shape = (3 * width, width)[: 2 if leaf == "weight" else 1]
                yield (prefix + ldm, shape, self.dtype, lambda makes=makes: torch.cat([make() for make in makes]))
        yield (prefix + "logit_scale", (), self.dtype, lambda: torch.tensor(math.log(100.0)))


SMALL_MERGES = ["t h", "th e</w>", "a n", "an d</w>", "i n", "in g</w>", "a t</w>", "o n</w>", "c at</w>", "r e",
                "re d</w>", "p h", "ph o", "t o</w>", "pho to</w>"]


def vocabulary_of(merges: list[str]) -> dict[str, int]:
    """CLIP's numbering: the 256 bytes, the same at a word's end, the merges, and last the two special tokens."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = [chr(byte) for byte in printable] + [chr(256 + i) for i in range(len(others))]
    tokens = alphabet + [token + "</w>" for token in alphabet] + [merge.replace(" ", "") for merge in merges]
    tokens += ["<|startoftext|>", "<|endoftext|>"]
    return {token: index for index, token in enumerate(tokens)}


def clip_merges() -> list[str]:
    """CLIP's merges as this repository ships them."""
    lines = (REPOSITORY / "share" / "vocab" / "clip" / "merges.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#version")]


def write_tokenizer(folder: Path, merges: list[str], pad_token: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = json.dumps(vocabulary_of(merges), ensure_ascii=False)
    (folder / "vocab.json").write_text(vocabulary, encoding="utf-8")
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", encoding="utf-8")
    special = {"bos_token": "<|startoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>",
               "pad_token": pad_token}
    (folder / "special_tokens_map.json").write_text(json.dumps(special, indent=2) + "\n")
    config = special | {"tokenizer_class": "CLIPTokenizer", "model_max_length": 77, "add_prefix_space": False,
                        "do_lower_case": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def write_checkpoint(kind: str, target: Path, *, tiny: bool = False, seed: int = 0, dtype: str = "fp16",
                     small_vocab: bool = False, variant: str = "", change: Callable[[dict], None] | None = None,
                     more_rows: int = 0) -> Path:
    """target ending in .safetensors: an LDM single file; else a Diffusers folder. Returns target.

    small_vocab: text encoders and tokenizer with the few tokens of SMALL_MERGES; else CLIP's 49,408. more_rows: of the text
    encoders' tables, for added tokens. change: edits the specification (model_shapes.shapes) in place.
    """
    rows = (len(vocabulary_of(SMALL_MERGES)) if small_vocab else CLIP_VOCABULARY) + more_rows
    model = RandomModel(kind, tiny, seed, DTYPES[dtype][0], rows, change)
    if target.suffix == ".safetensors":
        model.write_single_file(target)
        return target
    model.write_folder(target, variant)
    merges = SMALL_MERGES if small_vocab else clip_merges()
    for component, (_, encoder, _) in model.spec["text"].items():
        pad = "<|endoftext|>" if encoder == "clip_l" else "!"  # OpenCLIP pads with id 0, CLIP-L with the end token
        write_tokenizer(target / component.replace("text_encoder", "tokenizer"), merges, pad)
    return target


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=(*KINDS, WIDE))
    parser.add_argument("target", type=Path, help="a folder to make, or a file name ending in .safetensors")
    parser.add_argument("--dtype", choices=DTYPES, default="fp16")
    parser.add_argument("--tiny", action="store_true", help="small widths, the same topology")
    parser.add_argument("--small-vocab", action="store_true", help="a vocabulary of 529 tokens instead of CLIP's")
    parser.add_argument("--variant", default="", help="as in diffusion_pytorch_model.VARIANT.safetensors")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    write_checkpoint(args.kind, args.target, tiny=args.tiny, seed=args.seed, dtype=args.dtype,
                     small_vocab=args.small_vocab, variant=args.variant)
    print(args.target)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
