#!/usr/bin/env python3
"""Puts PNG images of one size into one sheet: benchmarks/stack_pictures.py OUT.png --columns 4 A.png B.png ...

Row by row, without gaps. Needs nothing but Python's standard library; reads what rocm-sd writes.
"""

from __future__ import annotations

import argparse
import struct
import zlib
from pathlib import Path

from compare_pictures import CHANNELS, read_png


def write_png(path: Path, width: int, height: int, values: bytes) -> None:
    """8-bit RGB without filters or interlacing."""
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    stride = width * CHANNELS
    rows = b"".join(b"\0" + values[y * stride:(y + 1) * stride] for y in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("images", type=Path, nargs="+")
    parser.add_argument("--columns", type=int, default=4)
    args = parser.parse_args()
    images = [read_png(path) for path in args.images]
    width, height = images[0][:2]
    for path, image in zip(args.images, images):
        if image[:2] != (width, height):
            raise SystemExit(f"{path}: {image[0]} x {image[1]}, expected {width} x {height} as {args.images[0]} is")
    if len(images) % args.columns:
        raise SystemExit(f"{len(images)} images do not fill rows of {args.columns}")
    stride = width * CHANNELS
    rows = [image[2][y * stride:(y + 1) * stride]
            for first in range(0, len(images), args.columns) for y in range(height) for image in images[first:first + args.columns]]
    write_png(args.output, width * args.columns, height * len(images) // args.columns, b"".join(rows))


if __name__ == "__main__":
    main()
