"""Tables and plots of docs/lab/performance-analysis.md from what bench_analysis_gpu wrote: times of a card, or an emulated card's counts.

    tables(data)["read"]        as benchmarks/tables.py shows them
    plot(data, "read")          (name, what it shows, the SVG's text)
"""

from __future__ import annotations

from plot_svg import Chart, bars


def rows_of(data: dict, group: str) -> list[dict]:
    return [row for row in data["rows"] if row["group"] == group]


def counted(data: dict) -> bool:
    return "lines64" in data["rows"][0]


def gb_per_s(row: dict, key: str = "bytes") -> float:
    return row[key] / row["us"] * 1e-3


def columns(**titles: str) -> list[dict]:
    """key="title", or "title|digits", or "title|digits|unit"."""
    made = []
    for key, title in titles.items():
        title, *more = title.split("|")
        column: dict = {"key": key, "title": title}
        if more:
            column["digits"] = int(more[0])
        if len(more) > 1:
            column["unit"] = more[1]
        made.append(column)
    return made


def lines_of(row: dict) -> dict:
    """bytes_asked_for counts a byte as often as lanes ask for it."""
    return {"what": row["name"], "useful": row["bytes_asked_for"] / 1024, "moved": row["lines64"] * 64 / 1024,
            "share": 100 * row["bytes_asked_for"] / (row["lines64"] * 64)}


def memory_tables(data: dict) -> dict:
    if counted(data):
        shown = columns(what="", useful="lanes ask for, KB|0", moved="lines of 64 bytes touched, KB|0", share="useful|0|%")
        found = {group: {"columns": shown, "rows": [lines_of(row) for row in rows_of(data, group)]}
                 for group in ("read", "row sums")}
        found["transpose"] = {"columns": shown + columns(lds="LDS cycles", conflicts="of them conflicts"),
                              "rows": [lines_of(row) | {"lds": row["lds_cycles"], "conflicts": row["lds_conflict_cycles"]}
                                       for row in rows_of(data, "transpose")]}
        base = next(row for row in rows_of(data, "lds") if row["stride"] == 1)
        found["lds"] = {"columns": columns(what="", cycles="LDS cycles", conflicts="of them conflicts", times="times stride 1|1|x"),
                        "rows": [{"what": row["name"], "cycles": row["lds_cycles"], "conflicts": row["lds_conflict_cycles"],
                                  "times": row["lds_cycles"] / base["lds_cycles"]} for row in rows_of(data, "lds")]}
    else:
        peak = data["peak"]["gb_per_s"]
        shown = columns(what="", us="us|1", rate="GB/s|0", share="of the peak|0|%")

        def line(row: dict) -> dict:
            return {"what": row["name"], "us": row["us"], "rate": gb_per_s(row), "share": 100 * gb_per_s(row) / peak}

        found = {group: {"columns": shown, "rows": [line(row) for row in rows_of(data, group)]}
                 for group in ("read", "row sums", "transpose")}
        base = next(row for row in rows_of(data, "lds") if row["stride"] == 1)
        found["lds"] = {"columns": columns(what="", us="us|1", rate="TB/s|2", times="times stride 1|1|x"),
                        "rows": [{"what": row["name"], "us": row["us"], "rate": gb_per_s(row, "lds_bytes") / 1e3,
                                  "times": row["us"] / base["us"]} for row in rows_of(data, "lds")]}
    return {name.replace(" ", "-"): table for name, table in found.items()}


def split(name: str) -> tuple[str, int]:
    """"naive 1024" -> its parts."""
    kind, _, size = name.rpartition(" ")
    return kind, int(size)


def by_size(rows: list[dict], value) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        kind, size = split(row["name"])
        found.setdefault(kind, []).append((size, value(row)))
    return found


def work_table(data: dict, group: str, unit: str) -> dict:
    rows = rows_of(data, group)
    if counted(data):
        shown = columns(what="", instructions="wave instructions", moved="memory lines, KB|0", lds="LDS cycles", conflicts="of them conflicts")
        return {"columns": shown, "rows": [{"what": row["name"], "instructions": row["instructions"], "moved": row["lines64"] / 16,
                                            "lds": row["lds_cycles"], "conflicts": row["lds_conflict_cycles"]} for row in rows]}
    kinds = by_size(rows, lambda row: row)
    sizes = [size for size, _ in next(iter(kinds.values()))]
    shown = columns(what="") + [part for size in sizes for part in columns(**{f"us{size}": f"{size} {unit}, us|1", f"rate{size}": "TFLOP/s|1"})]
    lines = []
    for kind, points in kinds.items():
        line: dict = {"what": kind}
        for size, row in points:
            line |= {f"us{size}": row["us"], f"rate{size}": row["flops"] / row["us"] * 1e-6}
        lines.append(line)
    return {"columns": shown, "rows": lines}


def fusion_table(data: dict) -> dict:
    pairs: dict[str, dict] = {}
    for row in rows_of(data, "fusion"):
        what, how = row["name"].rsplit(", ", 1)
        pairs.setdefault(what, {"what": what, "saved": row["bytes_saved"] / 1e6})[how] = row["us"]
    for pair in pairs.values():
        pair["gain"] = pair["apart"] / pair["fused"]
    return {"columns": columns(what="", apart="two launches, us|1", fused="one, us|1", gain="faster|2|x", saved="memory traffic saved, MB|1"),
            "rows": list(pairs.values())}


def vae_table(data: dict) -> dict:
    whole = rows_of(data, "vae")[0]
    return {"columns": columns(what="", ms="ms|2", times="times the whole|2|x", memory="working memory, MB|0", flops="TFLOP|2",
                               psnr="PSNR to the whole|1| dB"),
            "rows": [{"what": row["name"], "ms": row["us"] / 1e3, "times": row["us"] / whole["us"], "memory": row["arena_bytes"] / 1e6,
                      "flops": row["flops"] / 1e12} | ({"psnr": row["psnr_db"]} if "psnr_db" in row else {})
                     for row in rows_of(data, "vae")]}


def tables(data: dict) -> dict:
    found = memory_tables(data) | {"product": work_table(data, "product", "wide"), "attention": work_table(data, "attention", "tokens")}
    if rows_of(data, "fusion"):
        found["fusion"] = fusion_table(data)
    if rows_of(data, "vae"):
        found["vae"] = vae_table(data)
    return found


def plot(data: dict, name: str) -> tuple[str, str, str]:
    """One of read, lds, product, attention, scores, vae."""
    card = data.get("peak", {}).get("gpu", data["arch"])
    if name == "read":
        rows = [row for row in rows_of(data, "read") if row["width"] == 4 and row["offset"] == 0]
        if counted(data):
            chart = Chart(f"Lines fetched for what lanes read, {card}", "stride between lanes, elements of 4 bytes", "% of fetched bytes asked for", log_x=True)
            chart.line("useful", [(row["stride"], lines_of(row)["share"]) for row in rows])
        else:
            chart = Chart(f"Reads with gaps between lanes, {card}", "stride between lanes, elements of 4 bytes", "GB/s", log_x=True)
            chart.line("useful bytes", [(row["stride"], gb_per_s(row)) for row in rows])
            chart.line("if 64 bytes are fetched each time", [(row["stride"], gb_per_s(row) * min(row["stride"], 16)) for row in rows])
            chart.line("peak", [(row["stride"], data["peak"]["gb_per_s"]) for row in rows])
        return name, chart.title, chart.canvas().svg()
    if name == "lds":
        key = "lds_cycles" if counted(data) else "us"
        base = next(row for row in rows_of(data, "lds") if row["stride"] == 1)[key]
        rows = {row["name"]: {"x": row[key] / base} for row in rows_of(data, "lds")}
        title = f"LDS reads: {'cycles' if counted(data) else 'time'} in terms of stride 1, {card}"
        return name, title, bars(title, "x", rows).svg()
    if name in ("product", "attention"):
        x = "side of the matrices" if name == "product" else "tokens (16 heads of 40)"
        chart = Chart(f"{'y = x w^T' if name == 'product' else 'Attention'} in f16, {card}", x, "TFLOP/s", log_x=True, log_y=True)
        for kind, points in by_size(rows_of(data, name), lambda row: row["flops"] / row["us"] * 1e-6).items():
            chart.line(kind, points)
        return name, chart.title, chart.canvas().svg()
    if name == "vae":
        rows = {row["name"]: {"ms": row["us"] / 1e3, "memory, 100 MB": row["arena_bytes"] / 1e8} for row in rows_of(data, "vae")}
        title = f"Decoding 1024 x 1024: time and working memory, {card}"
        return name, title, bars(title, "", rows).svg()
    raise KeyError(name)
