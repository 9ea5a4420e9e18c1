#!/usr/bin/env python3
"""Draws the wings of heddle/ and their folders, as CMake has them, into docs/wings.svg.

A box may use the boxes below it. With --check, fails if the file is not what this would write.
"""
import sys

import check_layers

WIDTH, ROW, GAP, MARGIN = 860, 92, 14, 10
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
    """Folders of a wing; those that see libtorch have an asterisk."""
    below = sorted({name.split("/")[1] for name in targets if name.startswith(wing + "/")})
    return [name + ("*" if targets.get(f"{wing}/{name}", ([], False))[1] else "") for name in below]


def lines_of(words, room):
    lines = [""]
    for word in words:
        if lines[-1] and (len(lines[-1]) + len(word)) * 7.3 > room:
            lines.append("")
        lines[-1] += (", " if lines[-1] else "") + word
    return lines


def draw(targets):
    rows = rows_of(targets)
    height = 2 * MARGIN + len(rows) * (ROW + GAP) + 18
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
             f'role="img" aria-label="The wings of Heddle">', f"<style>{STYLE}</style>"]
    for n, row in enumerate(reversed(rows)):
        y = MARGIN + n * (ROW + GAP)
        width = (WIDTH - 2 * MARGIN - (len(row) - 1) * GAP) / len(row)
        for m, wing in enumerate(row):
            x = MARGIN + m * (width + GAP)
            kind = "edge" if wing in check_layers.EDGES else "box"
            parts.append(f'<rect class="{kind}" x="{x:.0f}" y="{y}" width="{width:.0f}" '
                         f'height="{ROW}" rx="6"/>')
            parts.append(f'<text class="name" x="{x + 12:.0f}" y="{y + 25}">{wing}</text>')
            for k, line in enumerate(lines_of(folders_of(wing, targets), width - 24)):
                parts.append(f'<text x="{x + 12:.0f}" y="{y + 47 + 17 * k}">{line}</text>')
    parts.append(f'<text class="note" x="{MARGIN}" y="{height - MARGIN}">A box may use the boxes '
                 "below it. Nothing uses the dashed ones but each other. * sees libtorch.</text>")
    return "\n".join(parts) + "\n</svg>\n"


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
