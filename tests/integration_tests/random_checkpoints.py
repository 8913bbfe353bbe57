"""Tiny random checkpoints that the tests of a file share, of a bounded number of bytes from one file to the next."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from make_random_checkpoint import write_checkpoint


class RandomCheckpoints:
    """Tiny random checkpoints by (kind, layout, dtype, seed, small_vocab), each made when it is first asked for."""

    def __init__(self, folder: Path):
        self.folder, self.made = folder, {}  # self.made: the longest unused first

    def get(self, kind: str, layout: str, dtype: str, seed: int, small_vocab: bool) -> Path:
        key = (kind, layout, dtype, seed, small_vocab)
        path = self.made.pop(key, None)
        if path is None:
            name = f"{kind}-{dtype}-{seed}{'-small' if small_vocab else ''}"
            target = Path(tempfile.mkdtemp(dir=self.folder)) / (name + (".safetensors" if layout == "single" else ""))
            path = write_checkpoint(kind, target, tiny=True, seed=seed, dtype=dtype, small_vocab=small_vocab)
        self.made[key] = path
        return path

    def shrink(self, most: int) -> None:
        """Deletes those longest unused until the others take `most` bytes. No test may hold a path of any."""
        sizes = {key: sum(file.stat().st_size for file in path.parent.rglob("*") if file.is_file())
                 for key, path in self.made.items()}
        for key in list(self.made):
            if sum(sizes.values()) <= most:
                break
            shutil.rmtree(self.made.pop(key).parent)
            del sizes[key]
