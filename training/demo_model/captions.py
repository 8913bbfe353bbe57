"""The caption grammar: a subject, maybe a size, maybe a background colour."""

from __future__ import annotations

import random

from demo_model.emoji import COLOURS, SIZES

SIZE_WORDS = {
    "small": ["small", "tiny", "little"],
    "medium": ["medium", "medium-sized"],
    "large": ["large", "big", "huge"],
}
PICTURE_WORDS = ["picture", "drawing", "icon", "emoji"]


def article(words: str) -> str:
    """'a' or 'an' for what follows, nothing before a plural."""
    if words.endswith("s") and not words.endswith("ss"):
        return ""
    return "an " if words[0].lower() in "aeiou" else "a "


def plain_caption(name: str, size: str, colour: str) -> str:
    """The one full form of a caption, used for measuring: 'a small red apple on a blue background'."""
    subject = name if size == "medium" else f"{size} {name}"
    return f"{article(subject)}{subject} on {article(colour)}{colour} background"


def random_subject(name: str, keywords: list[str], rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.75 or not keywords:
        return name
    if kind < 0.80:
        return rng.choice(keywords)
    if kind < 0.88:
        return f"{name}, {rng.choice(keywords)}"
    words = rng.sample(keywords, min(len(keywords), rng.randint(2, 3)))
    return (", " if rng.random() < 0.5 else " ").join(words)


def random_caption(name: str, keywords: list[str], size: str, colour: str, rng: random.Random) -> str:
    """One of the many ways to ask for this picture. Medium size and a white background may go without saying."""
    subject = random_subject(name, keywords, rng)
    if size != "medium" or rng.random() < 0.15:
        word = size if rng.random() < 0.6 else rng.choice(SIZE_WORDS[size])
        subject = f"{word} {subject}"
    form = rng.random()
    if form < 0.70:
        subject = article(subject) + subject
    elif form < 0.80:
        picture = rng.choice(PICTURE_WORDS)
        subject = f"{article(picture)}{picture} of {article(subject)}{subject}"
    if colour == "white" and rng.random() < 0.6:
        return subject
    form = rng.random()
    if form < 0.7:
        return f"{subject} on {article(colour)}{colour} background"
    if form < 0.8:
        return f"{subject}, {colour} background"
    return f"{subject} on {colour}" if form < 0.9 else f"{subject} with {article(colour)}{colour} background"


def caption_words(names: list[str], keywords: list[list[str]]) -> list[str]:
    """The text that the tokenizer's merges are learned from."""
    grammar = [word for words in SIZE_WORDS.values() for word in words] + list(SIZES) + list(COLOURS)
    grammar += PICTURE_WORDS + ["on a", "an", "of", "with", "background", ","]
    return names * 3 + [word for words in keywords for word in words] + grammar * 50
