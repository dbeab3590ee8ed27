"""A chart of rows "SERIES at N connections": CPU of a request against connections, as SVG. Its colours follow the
reader's light or dark scheme, and every line has its name at its end, so that colour is not all that tells them apart.
"""
import math
import re
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 60, 190, 46, 48  # margins
GAP = 16  # between two names

STYLE = """
  svg { --ink: #1f2328; --faint: #d0d7de; --c0: #0969da; --c1: #bc4c00; --c2: #59636e; --c3: #8250df; --c4: #1a7f37; }
  @media (prefers-color-scheme: dark) {
    svg { --ink: #f0f6fc; --faint: #3d444d; --c0: #58a6ff; --c1: #f0883e; --c2: #9198a1; --c3: #bc8cff; --c4: #3fb950; }
  }
  text { font: 13px system-ui, sans-serif; fill: var(--ink); } .title { font-weight: 600; font-size: 15px; }
  .grid { stroke: var(--faint); } path { fill: none; stroke-width: 2.5; }
"""


def series_of(rows):
    """{series: [(connections, value)]}, each sorted."""
    series = {}
    for row in rows:
        match = re.fullmatch(r"(.+) at (\d+) connections", row.name)
        if row.group == "load" and match:
            series.setdefault(match[1], []).append((int(match[2]), row.value))
    return {name: sorted(points) for name, points in series.items()}


def grid_of(least, most):
    """Values of 1, 2 and 5 times powers of ten from below the least to above the most: the scale is logarithmic."""
    steps = [part * 10 ** power for power in range(-3, 7) for part in (1, 2, 5)]
    first = max(i for i, step in enumerate(steps) if step <= least)
    last = min(i for i, step in enumerate(steps) if step >= most)
    return steps[first:max(last, first + 1) + 1]


def spread(places):
    """Moves places apart, downwards, so that names do not lie on each other; {name: place}."""
    out, last = {}, -GAP
    for name, y in sorted(places.items(), key=lambda item: item[1]):
        last = out[name] = max(y, last + GAP)
    return out


def chart(rows):
    """The SVG; raises ValueError where the rows hold no series."""
    series = series_of(rows)
    if not series:
        raise ValueError("nothing to draw: the group load was not measured")
    loads = sorted({n for points in series.values() for n, _ in points})
    values = [value for points in series.values() for _, value in points]
    grid = grid_of(min(values), max(values))

    def x(n):
        return LEFT + loads.index(n) * (WIDTH - LEFT - RIGHT) / max(len(loads) - 1, 1)

    def y(value):
        return HEIGHT - BOTTOM - math.log(value / grid[0]) / math.log(grid[-1] / grid[0]) * (HEIGHT - TOP - BOTTOM)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
           f'aria-label="CPU time of a request against connections">', f"<style>{STYLE}</style>",
           f'<text class="title" x="{LEFT}" y="22">CPU time of a request, in microseconds, at so many connections</text>']
    for value in grid:
        out.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>'
                   f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
    out += [f'<text x="{x(n):.1f}" y="{HEIGHT - BOTTOM + 22}" text-anchor="middle">{n}</text>' for n in loads]
    names = spread({name: y(points[-1][1]) for name, points in series.items()})
    for i, (name, points) in enumerate(series.items()):
        colour = f"var(--c{i % 5})"
        line = "L".join(f"{x(n):.1f} {y(value):.1f}" for n, value in points)
        out.append(f'<path d="M{line}" style="stroke:{colour}"/>'
                   f'<text x="{x(points[-1][0]) + 10:.1f}" y="{names[name] + 4:.1f}" style="fill:{colour}">{escape(name)}</text>')
    return "\n".join(out) + "\n</svg>\n"
