"""Prompt weights against AUTOMATIC1111's own parser.

ROCM_SD_A1111_PATH names a checkout of stable-diffusion-webui (only modules/prompt_parser.py is used); without it the
goldens in tests/data/prompt_attention.json and prompt_chunks.json, made with that parser, are checked alone.
"""
import importlib.util
import json
import os
import pathlib
import random
import sys
import types

import numpy as np
import pytest
from clip_reference import ROOT, our_prompts

WEBUI = os.environ.get("ROCM_SD_A1111_PATH")


@pytest.fixture(scope="module")
def webui_parse():
    if not WEBUI:
        pytest.skip("ROCM_SD_A1111_PATH is not set: only the stored goldens are compared with")
    sys.modules.setdefault("lark", types.SimpleNamespace(Lark=lambda *_: None))  # for schedules, which we do not use
    file = pathlib.Path(WEBUI) / "modules/prompt_parser.py"
    spec = importlib.util.spec_from_file_location("webui_prompt_parser", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.parse_prompt_attention


def test_goldens():
    goldens = json.loads((ROOT / "tests/data/prompt_attention.json").read_text(encoding="utf-8"))
    got = our_prompts([g["prompt"].encode() for g in goldens])
    assert len(goldens) > 100
    for golden, result in zip(goldens, got, strict=True):
        assert result.get("pieces") == golden["pieces"], golden["prompt"]


def test_chunk_goldens():
    goldens = json.loads((ROOT / "tests/data/prompt_chunks.json").read_text(encoding="utf-8"))
    got = our_prompts([g["prompt"].encode() for g in goldens])
    assert len(goldens) > 20
    for golden, result in zip(goldens, got, strict=True):
        assert result["count"] == golden["count"], golden["prompt"]
        assert [c["ids"] for c in result["chunks"]] == [c["ids"] for c in golden["chunks"]], golden["prompt"]
        for ours, theirs in zip(result["chunks"], golden["chunks"], strict=True):
            assert np.array_equal(np.float32(ours["weights"]), np.float32(theirs["weights"])), golden["prompt"]


LEXEMES = ["(", ")", "[", "]", ":", "\\", "\\(", "\\)", "\\[", "\\]", "\\\\", ":1.3)", ":0.5)", ":-2)", ":+.5)", ": 1.2)",
           ":1e3)", ":nan)", ":2.)", ":٢)", "BREAK", " BREAK ", "\nBREAK\n", "aBREAK", "BREAK_", "éBREAK", "BREAK\x1c", "a",
           "cat", " ", ", ", "\n", "é", "🍎", "e\u0301", "\u2028", "-", "1.5", "<lora:x:1>", "[a:b:0.5]", "|"]


def test_random_prompts(webui_parse):
    rng = random.Random(17)
    prompts = ["".join(rng.choices(LEXEMES, k=rng.randint(0, 25))) for _ in range(20000)]
    results = our_prompts([p.encode() for p in prompts])
    for prompt, result in zip(prompts, results, strict=True):
        want = [list(piece) for piece in webui_parse(prompt)]
        if any(abs(weight) > 1e4 for _, weight in want):
            assert "error" in result, prompt
        else:
            assert result.get("pieces") == want, prompt
