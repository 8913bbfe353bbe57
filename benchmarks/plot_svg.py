"""Bar and line charts as small SVG files, the same bytes for the same numbers, so that a check can compare them.

    Chart("Reads", "stride, elements", "GB/s").line("useful", [(1, 4100), (2, 2050)]).save(path)
    bars("Seconds a picture", "s", {"eager": {"this": 1.2}, "engine": {"this": 0.8}}).save(path)

Needs nothing but Python's library.
"""

from __future__ import annotations

import math
from html import escape
from pathlib import Path

COLORS = ("#1f6fb4", "#d8721c", "#2b8a4b", "#a23b72", "#6b6b6b", "#b8a000")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 360, 70, 16, 58, 52


def short(x: float) -> str:
    """Three digits, without an exponent where that is readable."""
    if x == 0 or not math.isfinite(x):
        return f"{x:g}"
    if 1e-3 <= abs(x) < 1e6:
        digits = max(0, 2 - math.floor(math.log10(abs(x))))
        text = f"{x:.{digits}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{x:.2e}"


def nice_steps(most: float, count: int = 5) -> list[float]:
    """0 and round steps up to `most` or just above it."""
    if not most > 0:
        return [0.0, 1.0]
    raw = most / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(f * power for f in (1, 2, 2.5, 5, 10) if f * power >= raw * (1 - 1e-9))
    return [i * step for i in range(math.ceil(most / step - 1e-9) + 1)]


class Canvas:
    def __init__(self, width: int, height: int):
        self.width, self.height, self.parts = width, height, []

    def text(self, x: float, y: float, words: str, anchor: str = "middle", size: int = 12, more: str = "") -> None:
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"{more}>{escape(words)}</text>')

    def path(self, kind: str, **attributes: object) -> None:
        def show(value: object) -> str:
            return f"{value:.1f}" if isinstance(value, float) else str(value)

        words = " ".join(f'{name.replace("_", "-")}="{show(value)}"' for name, value in attributes.items())
        self.parts.append(f"<{kind} {words}/>")

    def svg(self) -> str:
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
                f'viewBox="0 0 {self.width} {self.height}" font-family="sans-serif" fill="#222">\n'
                f'<rect width="{self.width}" height="{self.height}" fill="#fff"/>\n')
        return head + "\n".join(self.parts) + "\n</svg>\n"

    def save(self, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.svg(), encoding="utf-8")
        return path


def legend(canvas: Canvas, names: list[str]) -> None:
    x = LEFT
    for i, name in enumerate(names):
        canvas.path("rect", x=float(x), y=33.0, width=11, height=11, fill=COLORS[i % len(COLORS)])
        canvas.text(x + 16, 43, name, "start")
        x += 30 + round(6.8 * len(name))


class Chart:
    """Lines over a common x axis."""

    def __init__(self, title: str, x_label: str, y_label: str, log_x: bool = False, log_y: bool = False):
        self.title, self.x_label, self.y_label, self.log_x, self.log_y = title, x_label, y_label, log_x, log_y
        self.lines: dict[str, list[tuple[float, float]]] = {}

    def line(self, name: str, points: list[tuple[float, float]]) -> Chart:
        points = sorted((x, y) for x, y in points if math.isfinite(x) and math.isfinite(y))
        if points:
            self.lines[name] = points
        return self

    def canvas(self) -> Canvas:
        if not self.lines:
            raise ValueError(f"{self.title}: nothing to plot")
        canvas = Canvas(WIDTH, HEIGHT)
        xs = sorted({x for points in self.lines.values() for x, _ in points})
        ys = [y for points in self.lines.values() for _, y in points]
        if self.log_y:
            ticks = [10.0 ** e for e in range(math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)) - 1e-9) + 1)]
            ticks = ticks if len(ticks) > 1 else [ticks[0], 10 * ticks[0]]
        else:
            ticks = nice_steps(max(ys))
        scale_y = (lambda y: math.log10(y)) if self.log_y else (lambda y: y)
        scale_x = (lambda x: math.log2(x)) if self.log_x else (lambda x: x)
        low, high = scale_y(ticks[0]), scale_y(ticks[-1])
        first, last = scale_x(xs[0]), scale_x(xs[-1])
        bottom = HEIGHT - BOTTOM

        def at(x: float, y: float) -> tuple[float, float]:
            along = (scale_x(x) - first) / (last - first) if last > first else 0.5
            return (LEFT + 12 + along * (WIDTH - LEFT - RIGHT - 24), bottom - (scale_y(y) - low) / (high - low) * (bottom - TOP))

        for tick in ticks:
            y = at(xs[0], tick)[1]
            canvas.path("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, stroke="#ddd")
            canvas.text(LEFT - 6, y + 4, short(tick), "end")
        for x in xs if len(xs) <= 12 else xs[:: math.ceil(len(xs) / 12)]:
            canvas.text(at(x, ticks[-1])[0], bottom + 18, short(x))
        for i, points in enumerate(self.lines.values()):
            color = COLORS[i % len(COLORS)]
            places = [at(x, y) for x, y in points]
            canvas.path("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in places), fill="none", stroke=color,
                        stroke_width=2)
            for x, y in places:
                canvas.path("circle", cx=x, cy=y, r=3, fill=color)
        canvas.text(WIDTH / 2, 20, self.title, size=15)
        canvas.text(WIDTH / 2, HEIGHT - 12, self.x_label)
        middle = (TOP + bottom) / 2
        canvas.text(16, middle, self.y_label, more=f' transform="rotate(-90 16 {middle:.1f})"')
        legend(canvas, list(self.lines))
        return canvas

    def save(self, path: Path) -> Path:
        return self.canvas().save(path)


def bars(title: str, unit: str, rows: dict[str, dict[str, float]]) -> Canvas:
    """Horizontal bars: a group of them for each row, one for each series."""
    series = list(dict.fromkeys(name for row in rows.values() for name in row))
    if not series:
        raise ValueError(f"{title}: nothing to plot")
    thick = 18 if len(series) == 1 else 14
    left = 24 + round(6.8 * max(len(label) for label in rows))
    group = thick * len(series) + 10
    canvas = Canvas(WIDTH + max(0, left - 160), TOP + group * len(rows) + 34)
    most = max((v for row in rows.values() for v in row.values() if math.isfinite(v)), default=0.0)
    ticks = nice_steps(most)
    room = canvas.width - left - 70
    for tick in ticks:
        x = left + room * tick / ticks[-1]
        canvas.path("line", x1=x, x2=x, y1=TOP, y2=canvas.height - 30, stroke="#ddd")
        canvas.text(x, canvas.height - 14, short(tick) + (f" {unit}" if tick == ticks[-1] else ""))
    for r, (label, row) in enumerate(rows.items()):
        top = TOP + r * group + 4
        canvas.text(left - 8, top + thick * len(series) / 2 + 4, label, "end")
        for s, name in enumerate(series):
            value = row.get(name, math.nan)
            if not math.isfinite(value):
                continue
            width = room * value / ticks[-1]
            canvas.path("rect", x=float(left), y=float(top + s * thick), width=width, height=thick - 3, fill=COLORS[s % len(COLORS)])
            canvas.text(left + width + 5, top + s * thick + thick - 6, short(value), "start", 11)
    canvas.text(canvas.width / 2, 20, title, size=15)
    if len(series) > 1:
        legend(canvas, series)
    return canvas
