"""Draws docs/architecture.svg from the imports: `python docs/architecture.py`. `--check` only says whether it is true.

A room is a package of the app or the runtime. An arrow is an import; one that follows from others is left out.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path

import grimp

PICTURE = Path(__file__).with_suffix(".svg")
FLOORS = "app", "runtime"
WIDTH, HEIGHT, GAP_X, GAP_Y = 128, 34, 22, 40  # pixels of a room and between rooms
INK, PAPER, FILL = "#1f2937", "#ffffff", {"app": "#fde9c9", "runtime": "#d6e8f7"}
Arrows = Mapping[str, set[str]]  # room -> rooms that it imports


def rooms() -> Arrows:
    """Every room with the rooms that it imports; a module that stands alone in the app or the runtime is a room."""
    graph = grimp.build_graph(*FLOORS)
    found: dict[str, set[str]] = {room: set() for floor in FLOORS for room in graph.find_children(floor)}
    for module in graph.modules:
        importer = room_of(module)
        if importer in found:
            imported = map(room_of, graph.find_modules_directly_imported_by(module))
            found[importer] |= {room for room in imported if room in found and room != importer}
    return found


def room_of(module: str) -> str:
    """`runtime.drafters` of `runtime.drafters.ngram`."""
    return ".".join(module.split(".")[:2])


def floor_of(room: str) -> str:
    """The app or the runtime."""
    return room.partition(".")[0]


def reachable(room: str, arrows: Arrows) -> set[str]:
    """All rooms that one imports, directly or not."""
    found: set[str] = set()
    waiting = list(arrows[room])
    while waiting:
        if (there := waiting.pop()) not in found:
            found.add(there)
            waiting += arrows[there]
    return found


def reduced(arrows: Arrows) -> dict[str, set[str]]:
    """The arrows that do not follow from others."""
    beyond = {room: reachable(room, arrows) for room in arrows}
    return {room: {to for to in tos if not any(to in beyond[other] for other in tos)} for room, tos in arrows.items()}


def depth(room: str, arrows: Arrows) -> int:
    """The longest way down from a room inside the app or the runtime."""
    below = (depth(to, arrows) for to in arrows[room] if floor_of(to) == floor_of(room))
    return 1 + max(below, default=-1)


def places(arrows: Arrows) -> dict[str, tuple[float, float]]:
    """The middle of each room: those that nothing imports at the top, each row in the order of what stands above it."""
    rows: dict[int, list[str]] = {}
    n_runtime = 1 + max(depth(room, arrows) for room in arrows if room.startswith("runtime"))
    for room in arrows:
        rows.setdefault(depth(room, arrows) + n_runtime * room.startswith("app"), []).append(room)
    widest = max(map(len, rows.values()))
    found: dict[str, tuple[float, float]] = {}
    for row, level in enumerate(sorted(rows, reverse=True)):
        above = {room: [found[other][0] for other in found if room in arrows[other]] for room in rows[level]}
        ordered = sorted(rows[level], key=lambda room: (sum(above[room]) / max(1, len(above[room])), room))
        left = (widest - len(ordered)) * (WIDTH + GAP_X) / 2
        for i, room in enumerate(ordered):
            found[room] = left + i * (WIDTH + GAP_X) + WIDTH / 2 + GAP_X, row * (HEIGHT + GAP_Y) + HEIGHT
    return found


def drawing(arrows: Arrows) -> str:
    """The picture as SVG."""
    drawn = reduced(arrows)
    at = places(drawn)
    width, height = max(x for x, _ in at.values()) + WIDTH / 2 + GAP_X, max(y for _, y in at.values()) + HEIGHT
    lines = [
        line(at[room], at[to], is_within=floor_of(room) == floor_of(to))
        for room in sorted(drawn)
        for to in sorted(drawn[room])
    ]
    boxes = [box(room, *at[room]) for room in sorted(at)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
            f'font-family="system-ui, sans-serif" font-size="13">',
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            f'<path d="M0 0 8 4 0 8z" fill="{INK}"/></marker></defs>',
            f'<rect width="100%" height="100%" fill="{PAPER}"/>',
            *lines,
            *boxes,
            "</svg>\n",
        ]
    )


def line(start: tuple[float, float], end: tuple[float, float], is_within: bool) -> str:
    """An arrow from the bottom of one room to the top of another, lighter from the app to the runtime."""
    (x0, y0), (x1, y1) = start, end
    y0, y1 = y0 + HEIGHT / 2, y1 - HEIGHT / 2
    opacity = 0.75 if is_within else 0.25
    curve = f"M{x0:.0f} {y0:.0f} C{x0:.0f} {y0 + GAP_Y:.0f} {x1:.0f} {y1 - GAP_Y:.0f} {x1:.0f} {y1:.0f}"
    return (
        f'<path d="{curve}" fill="none" stroke="{INK}" stroke-width="1.2" opacity="{opacity}" marker-end="url(#tip)"/>'
    )


def box(room: str, x: float, y: float) -> str:
    """A room with its name."""
    floor, _, name = room.partition(".")
    return (
        f'<rect x="{x - WIDTH / 2:.0f}" y="{y - HEIGHT / 2:.0f}" width="{WIDTH}" height="{HEIGHT}" rx="6" '
        f'fill="{FILL[floor]}" stroke="{INK}"/>'
        f'<text x="{x:.0f}" y="{y + 4:.0f}" text-anchor="middle" fill="{INK}">{escape(name)}</text>'
    )


def main(arguments: Iterable[str]) -> int:
    """Writes the picture, or compares it with the imports."""
    wanted = drawing(rooms())
    if "--check" not in arguments:
        PICTURE.write_text(wanted, encoding="utf8")
        return 0
    return int(not PICTURE.exists() or PICTURE.read_text(encoding="utf8") != wanted)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
