#!/usr/bin/env python3
"""Draws the wings of heddle/ and their folders, as declared in CMake, into docs/wings.svg.

A box may use the boxes below it. With --check, fails if the file is not up to date."""
import sys

import check_layers

WIDTH, LINE, GAP, MARGIN = 860, 17, 12, 10
TASKS = {
    "core": "graphs and what is known of them", "price": "predicts time and memory",
    "compile": "applies a plan", "search": "finds plans", "run": "captures, trains, verifies",
    "api": "jobs for programs", "cli": "commands", "import": "graphs of others",
    "report": "tables and pages", "python": "the Python package"}
STYLE = """
  .box { fill: #f4f6fa; stroke: #5b6b86; }
  .edge { fill: #fff; stroke: #9aa5b8; stroke-dasharray: 5 3; }
  text { font: 14px system-ui, sans-serif; fill: #1d2533; }
  .name { font-weight: 600; font-size: 16px; }
  .note { font-size: 12px; fill: #5b6b86; }
  @media (prefers-color-scheme: dark) {
    .box { fill: #202735; stroke: #7f8fae; }
    .edge { fill: #161b26; stroke: #5b6b86; }
    text { fill: #e3e8f2; }
    .note { fill: #9aa9c4; }
  }
"""


def depth_of(wing, links):
    return 1 + max((depth_of(below, links) for below in links[wing]), default=-1)


def rows_of(targets):
    """Wings from the lowest row to the highest; the edges are the last row."""
    links = check_layers.wing_links(targets)
    rows = {}
    for wing in sorted(links):
        depth = len(links) if wing in check_layers.EDGES else depth_of(wing, links)
        rows.setdefault(depth, []).append(wing)
    return [rows[depth] for depth in sorted(rows)]


def folders_of(wing, targets):
    """Returns the folders of a wing; those that may use libtorch have an asterisk."""
    below = sorted({name.split("/")[1] for name in targets if name.startswith(wing + "/")})
    return [name + ("*" if targets.get(f"{wing}/{name}", ([], False))[1] else "") for name in below]


def lines_of(words, room):
    lines = [""]
    for word in words:
        if lines[-1] and (len(lines[-1]) + len(word)) * 7.3 > room:
            lines.append("")
        lines[-1] += (", " if lines[-1] else "") + word
    return lines


def draw_box(wing, lines, x, y, width, height):
    kind = "edge" if wing in check_layers.EDGES else "box"
    yield (f'<rect class="{kind}" x="{x:.0f}" y="{y}" width="{width:.0f}" height="{height}" '
           'rx="6"/>')
    yield (f'<text x="{x + 12:.0f}" y="{y + 24}"><tspan class="name">{wing}</tspan>'
           f'<tspan class="note" dx="10">{TASKS.get(wing, "")}</tspan></text>')
    for n, line in enumerate(lines):
        yield f'<text x="{x + 12:.0f}" y="{y + 46 + LINE * n}">{line}</text>'


def draw(targets):
    parts = []
    y = MARGIN
    for row in reversed(rows_of(targets)):
        width = (WIDTH - 2 * MARGIN - (len(row) - 1) * GAP) / len(row)
        lines = {wing: lines_of(folders_of(wing, targets), width - 24) for wing in row}
        height = 42 + LINE * max(map(len, lines.values()))
        for n, wing in enumerate(row):
            parts += draw_box(wing, lines[wing], MARGIN + n * (width + GAP), y, width, height)
        y += height + GAP
    parts.append(f'<text class="note" x="{MARGIN}" y="{y + 10}">A box may use the boxes below it. '
                 "Only dashed boxes use dashed boxes. * sees libtorch.</text>")
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 20}" '
                      'role="img" aria-label="The wings of Heddle">',
                      f"<style>{STYLE}</style>"] + parts + ["</svg>", ""])


def main():
    path = check_layers.ROOT / "docs/wings.svg"
    text = draw(check_layers.read_targets())
    if "--check" not in sys.argv:
        path.write_text(text)
    elif path.read_text() != text:
        print("docs/wings.svg differs from CMake's targets; run tools/wings_figure.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
