"""Learns a small byte-pair vocabulary and writes it in CLIP's file formats."""

from __future__ import annotations

import collections
import json
import re
import unicodedata
from pathlib import Path

START, END = "<|startoftext|>", "<|endoftext|>"
MODEL_MAX_LENGTH = 77
WORD_PATTERN = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d|[^\W\d_]+|\d|[^\s\w]+|_+")


def byte_symbols() -> dict[int, str]:
    """CLIP's printable stand-in for each byte, in the order of CLIP's vocabulary."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    symbols = {byte: chr(byte) for byte in printable}
    hidden = [byte for byte in range(256) if byte not in symbols]
    symbols.update({byte: chr(256 + n) for n, byte in enumerate(hidden)})
    return symbols


def count_words(texts: list[str]) -> collections.Counter:
    """How often each word occurs, as a tuple of byte symbols whose last ends in '</w>'."""
    symbols = byte_symbols()
    counts: collections.Counter = collections.Counter()
    for text in texts:
        for word in WORD_PATTERN.findall(unicodedata.normalize("NFC", text).lower()):
            letters = [symbols[byte] for byte in word.encode()]
            counts[(*letters[:-1], letters[-1] + "</w>")] += 1
    return counts


def merge_pair(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    merged, at = [], 0
    while at < len(word):
        step = 2 if word[at:at + 2] == pair else 1
        merged.append("".join(word[at:at + step]))
        at += step
    return tuple(merged)


def learn_merges(texts: list[str], count: int) -> list[tuple[str, str]]:
    """The `count` most frequent merges, ties broken by the symbols' order, so that the result is deterministic."""
    words = dict(count_words(texts))
    merges: list[tuple[str, str]] = []
    while len(merges) < count:
        pairs: collections.Counter = collections.Counter()
        for word, frequency in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += frequency
        if not pairs:
            raise ValueError(f"only {len(merges)} merges can be learned from these texts, {count} were asked for")
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        words = {merge_pair(word, best): frequency for word, frequency in words.items()}
    return merges


def write_tokenizer(texts: list[str], vocab_size: int, folder: Path) -> None:
    """Writes vocab.json, merges.txt and the two configuration files that CLIPTokenizer reads."""
    letters = list(byte_symbols().values())
    merges = learn_merges(texts, vocab_size - 2 * len(letters) - 2)
    tokens = letters + [letter + "</w>" for letter in letters] + ["".join(pair) for pair in merges] + [START, END]
    if len(set(tokens)) != vocab_size:
        raise ValueError(f"the vocabulary has {len(set(tokens))} distinct tokens, expected {vocab_size}")
    folder.mkdir(parents=True, exist_ok=True)
    vocab = {token: number for number, token in enumerate(tokens)}
    (folder / "vocab.json").write_text(json.dumps(vocab, ensure_ascii=False), encoding="utf-8")
    lines = ["#version: 0.2"] + [" ".join(pair) for pair in merges]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    special = {"bos_token": START, "eos_token": END, "unk_token": END, "pad_token": END}
    config = {"tokenizer_class": "CLIPTokenizer", "model_max_length": MODEL_MAX_LENGTH, "do_lower_case": True,
              "add_prefix_space": False, "errors": "replace", **special}
    (folder / "special_tokens_map.json").write_text(json.dumps(special, indent=2) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
