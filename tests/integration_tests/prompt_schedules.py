"""The texts that A1111's prompt editing stands for at each call of the UNet, from its documented grammar: an oracle for tests.

The grammar is given to lark's Earley parser (the program's own reader is a stack machine over characters); editing, alternation and
AND are evaluated here from the wiki's and the doctests' descriptions."""

from __future__ import annotations

import re

import lark

GRAMMAR = lark.Lark(r"""
start: (text | stray)*
stray: /[][():]/
text: (brackets | edit | turns | words | SPACE)*
brackets: round | valued | square
round: "(" text ")"
valued: "(" text ":" text ")"
square: "[" text "]"
edit: "[" [text ":"] text ":" [SPACE] SIGNED_NUMBER [SPACE] "]"
turns: "[" text ("|" [text])+ "]"
SPACE: /\s+/
words: /([^\\\[\]():|]|\\.)+/
%import common.SIGNED_NUMBER
""")


def _when(number: str, steps: int) -> int:
    value = float(number) * steps if "." in number else float(number)
    return min(steps, int(max(-1e9, min(1e9, value))))


def _marks(tree: lark.Tree, steps: int) -> list[int]:
    """The steps at which some text ends."""
    ends = {steps}
    for node in tree.iter_subtrees():
        if node.data == "edit":
            ends.add(_when(next(str(c) for c in node.children if isinstance(c, lark.Token) and c.type == "SIGNED_NUMBER"), steps))
        elif node.data == "turns":
            ends.update(range(1, steps + 1))
    return sorted(end for end in ends if end >= 1)


def _text(node, step: int, steps: int) -> str:
    if node is None:
        return ""
    if isinstance(node, lark.Token):
        return str(node)
    inner = list(node.children)
    if node.data == "edit":
        before, after, _, number, _ = inner
        return _text(before if step <= _when(str(number), steps) else after, step, steps)
    if node.data == "turns":
        return _text(inner[(step - 1) % len(inner)], step, steps)
    parts = [_text(child, step, steps) for child in inner]
    framed = {"round": "({})", "valued": "({}:{})", "square": "[{}]"}
    return framed[node.data].format(*parts) if node.data in framed else "".join(parts)


def schedule(prompt: str, steps: int) -> list[tuple[int, str]]:
    """(end, text): up to which step each text is drawn."""
    try:
        tree = GRAMMAR.parse(prompt)
    except lark.exceptions.LarkError:
        return [(steps, prompt)]
    return [(end, _text(tree, end, steps)) for end in _marks(tree, steps)]


def texts_of_calls(prompt: str, steps: int) -> list[str]:
    """The text of each call 0, 1, ... of the UNet: the first whose end is not before it."""
    ends = schedule(prompt, steps)
    return [next((text for end, text in ends if call <= end), ends[-1][1]) for call in range(steps)]


def parts(prompt: str) -> list[tuple[str, float]]:
    """AND: the parts' texts and weights."""
    out = []
    for part in re.split(r"\bAND\b", prompt):
        found = re.fullmatch(r"(.*?)\s*:\s*([-+]?(?:\d+\.?|\d*\.\d+))\s*", part, re.S)
        out.append((found[1], float(found[2])) if found else (part.rstrip(), 1.0))
    return out
