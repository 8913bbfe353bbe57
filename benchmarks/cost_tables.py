"""What an image costs on a card: tables of docs/explanation/cost-of-an-image.md, from share/published/{cards,figures}.json.

    tables(folder)     {"sd15": table, "sdxl": table, "cards": table}; benchmarks/tables.py shows them

Seconds an image are `steps` steps at the published rate. A rate of the sampling loop leaves out text encoding and decoding, so its
cost is a lower bound; so is what `rocm-sd predict` models. Electricity: board power for that time. Card: its price at launch over the
images that it draws in the assumed years and hours a day.
"""

from __future__ import annotations

import json
from pathlib import Path

WORKS = {"sd15": "sd15 512x512", "sdxl": "sdxl 1024x1024"}
KINDS = {"whole": "published, whole image", "loop": "published, sampling loop only", "bound": "modelled lower bound, not measured"}


def link(source: dict, text: str) -> str:
    return f"[{text}]({source['url']}), {source['date']}"


def cost(card: dict, seconds: float, assumed: dict) -> dict:
    """Dollars for a thousand images."""
    hours = 1000 * seconds / 3600
    lifetime = assumed["years"] * 365 * assumed["hours_per_day"]
    return {"electricity": hours * card["watts"] / 1000 * assumed["dollars_per_kwh"], "card": card["price"] * hours / lifetime}


def entries(cards: dict, figures: dict, work: str) -> list[dict]:
    """Each published or modelled speed of a card whose price is known, as seconds an image."""
    assumed, known = cards["assumptions"], {card["gpu"]: card for card in cards["cards"]}
    found = []
    for f in figures["figures"]:
        if f["work"] == work and f["measures"] in ("whole", "loop") and f["gpu"] in known and not f.get("batch"):
            source = figures["sources"][f["source"]]
            found.append({"gpu": f["gpu"], "software": f["software"], "kind": KINDS[f["measures"]], "seconds": assumed["steps"] / f["value"],
                          "source": link(source, source["title"])})
    for m in cards["modelled"]:
        if m["work"] == work:
            found.append({"gpu": m["gpu"], "software": f"rocm-sd, `rocm-sd predict` at commit {m['commit']}", "kind": KINDS["bound"],
                          "seconds": m["seconds"], "source": m["date"]})
    for entry in found:
        entry |= cost(known[entry["gpu"]], entry["seconds"], assumed)
    return sorted(found, key=lambda e: (e["gpu"], e["seconds"]))


def tables(folder: Path) -> dict:
    cards, figures = (json.loads((folder / name).read_text(encoding="utf-8")) for name in ("cards.json", "figures.json"))
    dollars = {"digits": 3, "unit": " $"}
    columns = [{"key": "gpu", "title": "card"}, {"key": "software", "title": "software"}, {"key": "kind", "title": "what the figure is"},
               {"key": "seconds", "title": f"seconds an image, {cards['assumptions']['steps']} steps", "significant": 3},
               {"key": "electricity", "title": "electricity for 1000 images"} | dollars, {"key": "card", "title": "card for 1000 images"} | dollars,
               {"key": "source", "title": "source"}]
    out = {name: {"columns": columns, "rows": entries(cards, figures, work)} for name, work in WORKS.items()}
    out["cards"] = {"columns": [{"key": "gpu", "title": "card"}, {"key": "price", "title": "price at launch", "unit": " $"}, {"key": "price_source", "title": "source"},
                                {"key": "watts", "title": "board power", "unit": " W"}, {"key": "watts_source", "title": "source"}],
                    "rows": [card | {key: link(card[key], "page") for key in ("price_source", "watts_source")} for card in cards["cards"]]}
    return out
