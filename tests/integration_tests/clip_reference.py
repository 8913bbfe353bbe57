"""CLIP's reference tokenizer (transformers on the Rust `tokenizers`) built from the shipped merges, and ours."""
import json
import os
import pathlib
import struct
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
MERGES = ROOT / "share/vocab/clip/merges.txt"


def build_dir() -> pathlib.Path:
    """The build tree under test; ROCM_SD_BUILD_DIR names another."""
    return pathlib.Path(os.environ.get("ROCM_SD_BUILD_DIR", ROOT / "build/cpu"))


def byte_symbols() -> list[str]:
    """The characters that stand for bytes, in CLIP's numbering."""
    itself = [b for b in range(256) if 0x21 <= b <= 0x7E or 0xA1 <= b <= 0xAC or b >= 0xAE]
    others = [b for b in range(256) if b not in itself]
    return [chr(b) for b in itself] + [chr(0x100 + i) for i in range(len(others))]


def read_merges() -> list[tuple[str, str]]:
    lines = MERGES.read_text(encoding="utf-8").split("\n")
    return [tuple(line.split(" ")) for line in lines[1:] if line]


def vocabulary(merges: list[tuple[str, str]]) -> dict[str, int]:
    symbols = byte_symbols()
    tokens = symbols + [s + "</w>" for s in symbols] + [a + b for a, b in merges]
    tokens += ["<|startoftext|>", "<|endoftext|>"]
    return {token: i for i, token in enumerate(tokens)}


def reference_tokenizer(**kwargs):
    from transformers import CLIPTokenizer

    merges = read_merges()
    return CLIPTokenizer(vocab=vocabulary(merges), merges=merges, **kwargs)


def our_prompts(prompts: list[bytes], *arguments: str) -> list[dict]:
    """Pieces and chunks of prompts by our parser; {"error": ...} where it refuses."""
    tool = build_dir() / "bin/prompt_main"
    assert tool.exists(), f"{tool} is not built (ninja prompt_main)"
    data = b"".join(struct.pack("<I", len(p)) + p for p in prompts)
    done = subprocess.run([str(tool), *arguments], input=data, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.split(b"\n")[:-1]]


def our_ids(texts: list[bytes], *arguments: str) -> list[list[int]]:
    """Ids by our tokenizer; texts in UTF-8. One process for all of them."""
    tool = build_dir() / "bin/tokenize_main"
    assert tool.exists(), f"{tool} is not built (ninja tokenize_main)"
    data = b"".join(struct.pack("<I", len(t)) + t for t in texts)
    done = subprocess.run([str(tool), *arguments], input=data, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    out, at, result = done.stdout, 0, []
    for _ in texts:
        (count,) = struct.unpack_from("<I", out, at)
        result.append(list(struct.unpack_from(f"<{count}i", out, at + 4)))
        at += 4 + 4 * count
    assert at == len(out)
    return result
