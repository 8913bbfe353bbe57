#!/usr/bin/env python3
"""Compares two PNG pictures: benchmarks/compare_pictures.py A.png B.png --least 40

Prints the peak signal-to-noise ratio in dB; exits 1 where it is below --least, where the sizes differ, or where the first
picture is flat, so that a comparison would prove nothing. Needs nothing but Python's standard library; reads what rocm-sd
writes: 8-bit RGB without interlacing.
"""

from __future__ import annotations

import argparse
import math
import struct
import sys
import zlib
from pathlib import Path

CHANNELS = 3
LEAST_CONTRAST = 5  # standard deviation of the values, of 255


def read_png(path: Path) -> tuple[int, int, bytes]:
    """Width, height and the values, row by row."""
    data = path.read_bytes()
    if data[:8] != b"\x89PNG\r\n\x1a\n":
        raise SystemExit(f"{path}: not a PNG file")
    header, packed, at = None, b"", 8
    while at + 12 <= len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        body = data[at + 8:at + 8 + size]
        if kind == b"IHDR":
            header = struct.unpack(">IIBBBBB", body)
        elif kind == b"IDAT":
            packed += body
        at += size + 12
    if header is None or header[2:] != (8, 2, 0, 0, 0):
        raise SystemExit(f"{path}: expected 8-bit RGB without interlacing")
    return header[0], header[1], unfilter(zlib.decompress(packed), header[0] * CHANNELS, header[1], path)


def unfilter(raw: bytes, stride: int, height: int, path: Path) -> bytes:
    """Undoes the filters of the PNG specification, section 9."""
    if len(raw) != (stride + 1) * height:
        raise SystemExit(f"{path}: {len(raw)} bytes of pixels, expected {(stride + 1) * height}")
    rows, above = [], bytes(stride)
    for y in range(height):
        kind, row = raw[y * (stride + 1)], bytearray(raw[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
        for x in range(stride):
            left = row[x - CHANNELS] if x >= CHANNELS else 0
            corner = above[x - CHANNELS] if x >= CHANNELS else 0
            row[x] = (row[x] + predicted(kind, left, above[x], corner)) & 255
        rows.append(bytes(row))
        above = row
    return b"".join(rows)


def predicted(kind: int, left: int, up: int, corner: int) -> int:
    if kind == 4:  # Paeth
        estimate = left + up - corner
        return min((left, up, corner), key=lambda v: abs(estimate - v))
    return (0, left, up, (left + up) // 2)[kind]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    parser.add_argument("--least", type=float, default=0, help="dB")
    args = parser.parse_args()
    width, height, a = read_png(args.first)
    if (width, height) != (size := read_png(args.second))[:2]:
        print(f"{args.second}: {size[0]}x{size[1]}, but {args.first} is {width}x{height}")
        return 1
    b = size[2]
    mean = sum(a) / len(a)
    if math.sqrt(sum((v - mean) ** 2 for v in a) / len(a)) < LEAST_CONTRAST:
        print(f"{args.first}: a flat picture, which proves nothing")
        return 1
    error = sum((v - w) ** 2 for v, w in zip(a, b)) / len(a)
    psnr = math.inf if error == 0 else 10 * math.log10(255 * 255 / error)
    print(f"{args.second} against {args.first}: {psnr:.1f} dB")
    if psnr < args.least:
        print(f"expected {args.least:g} dB or more")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
