"""What was measured: rows, as a table for terminals and Markdown, and against the figures that are agreed on.

A row has a value and a unit; `against`, what it is compared with and its value; and `goal`, the most that
`figure` may be. The figure is value / against where there is something to compare with, else the value: only
ratios are agreed on, since they mean the same on another machine.
"""
from dataclasses import dataclass
from typing import Optional

ON_THE_CLOCK = ("p50 added", "first byte added")  # rows that a busy machine changes: not agreed on
TOLERANCE = 1.15  # a ratio that is over this many times the agreed one has regressed


@dataclass
class Row:
    group: str
    name: str
    value: float
    unit: str
    against: Optional[float] = None
    peer: str = ""
    goal: Optional[float] = None

    @property
    def ratio(self):
        return self.value / self.against if self.against else None

    @property
    def figure(self):
        return self.value if self.against is None else self.ratio

    @property
    def key(self):
        return f"{self.group}.{self.name}" + (f"/{self.peer}" if self.peer else "")

    @property
    def verdict(self):
        if self.goal is None or self.figure is None:
            return ""
        return "met" if self.figure <= self.goal else "not met"


HEAD = ("what", "value", "against", "ratio", "goal", "")


def number(value):
    if value is None:
        return ""
    if value != value:
        return "?"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def cells(row):
    against = f"{row.peer} {number(row.against)}" if row.against is not None else ""
    goal = f"≤ {number(row.goal)}" + ("" if row.against is not None else f" {row.unit}") if row.goal is not None else ""
    return (f"{row.group}: {row.name}", f"{number(row.value)} {row.unit}", against, number(row.ratio), goal, row.verdict)


def table(rows):
    """For a terminal: columns as wide as their cells."""
    lines = [HEAD] + [cells(row) for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEAD))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths)).rstrip() for line in lines)


def markdown(rows):
    lines = [HEAD, ("---",) * len(HEAD)] + [cells(row) for row in rows]
    return "\n".join("| " + " | ".join(c.replace("|", "\\|") for c in line) + " |" for line in lines) + "\n"


def read_agreed(text):
    """{key: ratio} of lines `key ratio`; # begins a comment. Raises ValueError with the line's number."""
    agreed = {}
    for n, line in enumerate(text.splitlines(), 1):
        line = line.partition("#")[0].strip()
        if not line:
            continue
        key, _, ratio = line.rpartition(" ")
        try:
            agreed[key.strip()] = float(ratio)
        except ValueError:
            raise ValueError(f"line {n}: not a key and a ratio: {line}") from None
        if not key.strip() or not agreed[key.strip()] > 0:
            raise ValueError(f"line {n}: not a key and a ratio above 0: {line}")
    return agreed


AGREED_HEAD = ("# Ratios of CPU time that a change must not make over 15 % worse: scripts/bench --check. "
               "Written by scripts/bench --agree.\n")


def write_agreed(rows, before):
    """The text of a file of agreed ratios; of `before`, as read_agreed gives it, what belongs to groups that did not run."""
    ran = {row.group for row in rows}
    agreed = {key: ratio for key, ratio in before.items() if key.partition(".")[0] not in ran}
    agreed.update((row.key, row.ratio) for row in rows
                  if row.ratio is not None and not row.name.startswith(ON_THE_CLOCK))
    return AGREED_HEAD + "".join(f"{key} {ratio:.3f}\n" for key, ratio in agreed.items())


def check(rows, agreed):
    """(sentences about what regressed, keys that were agreed on in the groups that ran and are not there)."""
    measured = {row.key: row.ratio for row in rows if row.ratio is not None}
    groups = {row.group for row in rows}
    worse = [f"{key}: {number(measured[key])}, agreed {number(ratio)}: {100 * (measured[key] / ratio - 1):.0f} % more"
             for key, ratio in agreed.items() if key in measured and not measured[key] <= ratio * TOLERANCE]
    missing = [key for key in agreed if key not in measured and key.partition(".")[0] in groups]
    return worse, missing
