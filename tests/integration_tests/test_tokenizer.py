"""Our CLIP tokenizer against transformers' for every code point, random strings and tokenizer folders."""
import json
import random

import pytest

from clip_reference import byte_symbols, our_ids, read_merges, reference_tokenizer, vocabulary

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]

ALPHABETS = {
    "ascii": [chr(c) for c in range(32, 127)],
    "latin": [chr(c) for c in range(0x20, 0x250)],
    "combining": list("aeiounsAEIOUZ ") + [chr(c) for c in range(0x300, 0x370)] + [chr(c) for c in range(0x591, 0x5C8)],
    "hangul": [chr(c) for c in range(0x1100, 0x1200)] + [chr(c) for c in range(0xAC00, 0xAC80)] + [" "],
    "indic": [chr(c) for c in range(0x900, 0xE00)],
    "cjk": [chr(c) for c in range(0x4E00, 0x4F00)] + [chr(c) for c in range(0x3000, 0x3100)],
    "full width": [chr(c) for c in range(0xFF00, 0xFFF0)] + list("ab '"),
    "rtl": [chr(c) for c in range(0x5D0, 0x700)] + ["\u200f", "\u202b", "\u202c", " "],
    "controls": [chr(c) for c in range(0, 0xA1)] + ["\u2028", "\u200b", "\ufeff", "\u180e", "\u00ad"],
    "spaces": list(" \t\n\r\v\f\x1c\x1d\x85\xa0\u1680\u2003\u2028\u3000ab"),
    "digits": [chr(c) for c in CODE_POINTS if chr(c).isnumeric()] + list("a .,"),
    "emoji": [chr(c) for c in range(0x1F300, 0x1F700)] + ["\u200d", "\ufe0f", "\u20e3", "\U0001f3fb"] + list("a1"),
    "case": list("İIıiΣσςẞßǅǆÅÅKKſsΩΩ\u0307 'SsTtREreVevE"),
    "quotes": list("'’`sStTreREveVEmMllLLdD <|>"),
    "any plane": [chr(random.Random(5).choice(CODE_POINTS)) for _ in range(4000)],
    "new marks": [chr(c) for c in [0x7FD, 0x898, 0x9FE, 0x1AC0, 0x1DF6, 0x11938, 0x11935, 0x11930, 0x105D2, 0x11382,
                                   0x334, 0x323, 0x301, 0x345, 0x61, 0x41, 0x1E130, 0x5C8, 0x897]],
}


def reference_ids(tokenizer, texts):
    """The Rust tokenizer inside transformers' class; its Python wrapper adds nothing to the ids but minutes."""
    out = []
    for start in range(0, len(texts), 20000):
        batch = tokenizer.backend_tokenizer.encode_batch_fast(texts[start:start + 20000], add_special_tokens=False)
        out += [encoding.ids for encoding in batch]
    return out


def assert_same(tokenizer, texts, *arguments):
    want = reference_ids(tokenizer, texts)
    got = our_ids([t.encode() for t in texts], *arguments)
    wrong = [(t, w, g) for t, w, g in zip(texts, want, got, strict=True) if w != g]
    lines = [f"{[hex(ord(c)) for c in t]}: reference {w}, ours {g}" for t, w, g in wrong[:20]]
    assert not wrong, f"{len(wrong)} of {len(texts)} differ:\n" + "\n".join(lines)


@pytest.fixture(scope="module")
def reference():
    return reference_tokenizer()


# Without the ideographs, Hangul syllables, private use and the planes without characters: these behave alike.
VARIED = [c for c in CODE_POINTS
          if c < 0x3400 or 0xA000 <= c < 0xAC10 or 0xD7A0 <= c < 0xE010 or 0xF900 <= c < 0x20010 or 0x2F800 <= c < 0x2FA20]
ALONE = ["{}", "a{}b"]


@pytest.mark.parametrize("pattern", ALONE)
def test_code_points(reference, pattern):
    """All that vary, and of those that behave alike one in 23; the next test has every one."""
    alike = sorted(set(CODE_POINTS) - set(VARIED))[::23]
    assert_same(reference, [pattern.replace("{}", chr(c)) for c in VARIED + alike])


@pytest.mark.full
@pytest.mark.parametrize("pattern", ALONE)
def test_every_code_point(reference, pattern):
    assert_same(reference, [pattern.replace("{}", chr(c)) for c in CODE_POINTS])


@pytest.mark.parametrize("pattern", ["a{}\u0301\u0323 {}1{}'s", "\u0345{}\u0334", "{}\u0338\u0307"])
def test_code_points_among_marks(reference, pattern):
    assert_same(reference, [pattern.replace("{}", chr(c)) for c in VARIED])


def test_wrapper_adds_nothing(reference):
    texts = ["a photo of a cat", "é<|endoftext|>x", "İ ΑΣ"]
    assert reference(texts, add_special_tokens=False)["input_ids"] == reference_ids(reference, texts)


@pytest.mark.parametrize("name", ALPHABETS)
def test_random_strings(reference, name):
    rng = random.Random(name)
    texts = ["".join(rng.choices(ALPHABETS[name], k=rng.randint(0, 60))) for _ in range(3000)]
    assert_same(reference, texts)


def test_mixed_alphabets(reference):
    rng = random.Random(11)
    texts = []
    for _ in range(10000):
        parts = [rng.choice(ALPHABETS[rng.choice(list(ALPHABETS))]) for _ in range(rng.randint(1, 40))]
        texts.append("".join(parts))
    assert_same(reference, texts)


def words(rng):
    alphabet = "etaoinshrdlu"
    return "".join(rng.choices(alphabet, k=rng.randint(1, 14)))


def test_prompt_like_text(reference):
    rng = random.Random(3)
    glue = [" ", ", ", "-", "'s ", ". ", "! ", "  ", "\n", "(", ") ", "<|endoftext|>", "<|startoftext|>", "<|ENDOFTEXT|>",
            "<|endoftext|", "|>", "&amp;", "🇩🇪", "👩‍🚀", "é", "e\u0301", "½", "٣", "Ⅷ"]
    texts = ["".join(words(rng) + rng.choice(glue) for _ in range(rng.randint(0, 30))) for _ in range(5000)]
    assert_same(reference, texts)


def test_long_and_degenerate(reference):
    texts = ["", " ", "a" * 30000, "ab" * 10000, "'" * 5000, "e" + "\u0301\u0323" * 5000, "\u0301" * 3000, "\x00", "\ufffd",
             "<|endoftext|>" * 100, "<|" * 1000, "가" * 2000, "\U0001f468\u200d\U0001f469" * 500, "1" * 1000]
    assert_same(reference, texts)


def test_invalid_utf8_becomes_replacement(reference):
    raw = [b"a\xffb", b"\xed\xa0\x80", b"\xc0\x80x", b"caf\xc3", b"\xf4\x90\x80\x80"]
    # The reference cannot be given such text; per invalid byte one U+FFFD is our documented reading.
    texts = ["a\ufffdb", "\ufffd" * 3, "\ufffd\ufffdx", "caf\ufffd", "\ufffd" * 4]
    assert our_ids(raw) == reference_ids(reference, texts)


def token_object(content, normalized, **more):
    return {"content": content, "lstrip": False, "normalized": normalized, "rstrip": False, "single_word": False, **more}


FOLDERS = {
    "plain": ({}, None),
    # Stable Diffusion 1: token objects that are looked for in the normalised text.
    "sd1": ({"bos_token": token_object("<|startoftext|>", True, __type="AddedToken"),
             "eos_token": token_object("<|endoftext|>", True, __type="AddedToken"),
             "unk_token": token_object("<|endoftext|>", True, __type="AddedToken"),
             "pad_token": "<|endoftext|>", "model_max_length": 77},
            {"bos_token": token_object("<|startoftext|>", True), "eos_token": token_object("<|endoftext|>", True),
             "pad_token": "<|endoftext|>", "unk_token": token_object("<|endoftext|>", True)}),
    # SDXL's second tokenizer pads with "!", which so becomes a special token.
    "sdxl2": ({"added_tokens_decoder": {"0": token_object("!", False, special=True),
                                        "49406": token_object("<|startoftext|>", True, special=True),
                                        "49407": token_object("<|endoftext|>", True, special=True)},
               "bos_token": "<|startoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>",
               "pad_token": "!", "model_max_length": 77},
              {"bos_token": token_object("<|startoftext|>", True), "eos_token": token_object("<|endoftext|>", True),
               "pad_token": "!", "unk_token": token_object("<|endoftext|>", True)}),
    "objects": ({"bos_token": token_object("<|startoftext|>", True, __type="AddedToken"),
                 "eos_token": token_object("<|endoftext|>", True, __type="AddedToken"),
                 "unk_token": token_object("<|endoftext|>", True, __type="AddedToken"),
                 "pad_token": token_object("<|endoftext|>", True, __type="AddedToken")}, None),
    "map only": (None, {"bos_token": "<|startoftext|>", "eos_token": "<|endoftext|>", "pad_token": "!",
                        "unk_token": "<|endoftext|>"}),
    "new pad": ({"pad_token": "<pad>"}, None),
    "added": ({"added_tokens_decoder": {"49407": token_object("<|endoftext|>", False, special=True),
                                        "49406": token_object("<|startoftext|>", False, special=True),
                                        "49408": token_object("<Cat Toy>", True, special=False),
                                        "49409": token_object("<cat>", False, special=False)}}, None),
}
FOLDER_TEXTS = ["a cat", "hello! there!!", "<|endoftext|> x <|EndOfText|>!", "<|STARTOFTEXT|>a", "<pad> a<PAD>b", "x<cat toy>y",
                "<CAT TOY> <cat><CAT>", "é<|e\u0301ndoftext|>", "!<|endoftext|>!", "a <|endoftext|>> b", ""]


def test_added_tokens_json(tmp_path):
    """The older way to add a concept's word, as textual inversion saved it."""
    from transformers import CLIPTokenizer

    write_folder(tmp_path, "files", {}, None)
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<Cat Toy>": 49409, "<cat>": 49408}))
    assert_same(CLIPTokenizer.from_pretrained(str(tmp_path)), FOLDER_TEXTS, str(tmp_path))


def write_folder(folder, layout, config, token_map):
    merges = read_merges()
    vocab = vocabulary(merges)
    if layout == "files":
        (folder / "vocab.json").write_text(json.dumps(vocab), encoding="utf-8")
        (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges), encoding="utf-8")
    else:
        lines = merges if layout == "json pairs" else [f"{a} {b}" for a, b in merges]
        tokens = [token_object(t, False, special=True, id=vocab[t]) for t in ["<|startoftext|>", "<|endoftext|>"]]
        (folder / "tokenizer.json").write_text(json.dumps({
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, "normalizer": None,
            "pre_tokenizer": None, "post_processor": None, "decoder": None,
            "model": {"type": "BPE", "dropout": None, "unk_token": "<|endoftext|>", "continuing_subword_prefix": "",
                      "end_of_word_suffix": "</w>", "fuse_unk": False, "vocab": vocab, "merges": lines}}))
    if config is not None:
        config = {"tokenizer_class": "CLIPTokenizer", **config}
        (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    if token_map is not None:
        (folder / "special_tokens_map.json").write_text(json.dumps(token_map), encoding="utf-8")


LAYOUTS = [("files", name) for name in FOLDERS] + [("json pairs", "plain"), ("json lines", "sd1"), ("json pairs", "sdxl2"),
                                                   ("json pairs", "new pad"), ("json lines", "added")]


@pytest.mark.parametrize("layout,name", LAYOUTS)
def test_folders(tmp_path, name, layout):
    from transformers import CLIPTokenizer

    write_folder(tmp_path, layout, *FOLDERS[name])
    assert_same(CLIPTokenizer.from_pretrained(str(tmp_path)), FOLDER_TEXTS, str(tmp_path))


def test_small_vocabulary_with_unknown_bytes(tmp_path):
    """A vocabulary that lacks most bytes: each unknown byte is the unknown token."""
    from transformers import CLIPTokenizer

    symbols = [s for s in byte_symbols() if s in "abcdefg!"]
    merges = [("a", "b"), ("c", "d</w>"), ("ab", "cd</w>"), ("a", "a"), ("aa", "aa"), ("b", "c"), ("ab", "c")]
    tokens = symbols + [s + "</w>" for s in symbols] + [a + b for a, b in merges]
    vocab = {t: i for i, t in enumerate(dict.fromkeys(tokens + ["<|startoftext|>", "<|endoftext|>"]))}
    (tmp_path / "vocab.json").write_text(json.dumps(vocab))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges))
    rng = random.Random(9)
    texts = ["".join(rng.choices("abcdeaaaabbcd fgxé!", k=rng.randint(0, 30))) for _ in range(3000)]
    assert_same(CLIPTokenizer.from_pretrained(str(tmp_path)), texts, str(tmp_path))


COMMAND_TEXTS = ["", "a photo of a cat", "café, naïve \U0001f431 42nd!", "supercalifragilisticexpialidocious " * 12, "<|endoftext|> x"]


@pytest.mark.parametrize("text", COMMAND_TEXTS, ids=range(len(COMMAND_TEXTS)))
def test_tokenize_command_gives_the_ids_of_transformers(rocm_sd, text):
    reference = reference_tokenizer()
    want = reference(text, padding="max_length", max_length=77, truncation=True)["input_ids"]
    (got,) = json.loads(rocm_sd("tokenize", "--plain-prompt", "--json", "--", text).stdout)
    (chunk,) = got["chunks"]
    assert chunk["ids"] == want
    assert chunk["pieces"] == reference.convert_ids_to_tokens(want)
    assert got["tokens"] == min(75, len(reference(text)["input_ids"]) - 2)
    shown = rocm_sd("tokenize", "--plain-prompt", "--", text).stdout
    assert all(str(number) in shown for number in want)


def test_tokenize_command_takes_a_models_vocabularies(rocm_sd, tiny_model, tmp_path):
    from transformers import CLIPTokenizer

    model = tiny_model("sdxl")
    encoders = json.loads(rocm_sd("tokenize", "--model", model, "--json", "a (cat:1.5) BREAK dog").stdout)
    assert [e["encoder"] for e in encoders] == ["text_encoder", "text_encoder_2"]
    for encoder, folder in zip(encoders, ("tokenizer", "tokenizer_2")):
        reference = CLIPTokenizer.from_pretrained(model / folder)
        first, second = encoder["chunks"]
        cat = reference("cat", add_special_tokens=False)["input_ids"]
        assert first["ids"][:1] == [reference.bos_token_id] and first["ids"][-1] == reference.pad_token_id
        assert [i for i, w in zip(first["ids"], first["weights"]) if w == 1.5] == cat
        assert second["ids"][1:second["eos_position"]] == reference("dog", add_special_tokens=False)["input_ids"]
    rocm_sd("tokenize", "--tokenizer", model / "tokenizer", "a cat")
    assert "got both" in rocm_sd("tokenize", "--tokenizer", model / "tokenizer", "--model", model, "a cat", code=2).stderr
    assert "vocab.json" in rocm_sd("tokenize", "--tokenizer", tmp_path, "a cat", code=3).stderr
