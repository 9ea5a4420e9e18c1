#!/usr/bin/env python3
"""Writes docs/diagnostics.md from diagnostics.def and remarks.def.

The comment above each entry explains the tag: when it appears and how to respond.
With --check, fails if the page is out of date or an entry has no comment.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/diagnostics.md"
DIAGNOSTICS = ROOT / "heddle/core/base/diagnostics.def"
REMARKS = ROOT / "heddle/compile/manager/remarks.def"
ENTRY = re.compile(r'((?:^// .*\n)*)^HEDDLE_\w+\(\w+,\s*"([\w-]+)"(?:,\s*"([^"]*)")?\)', re.M)
HEAD = """# Diagnostics

Every error and every remark ends with a tag in brackets:

```
$ heddle sim step.hd --cluster=h100
no cluster is named `h100`; use a100-8x, b200-8x, cpu, h100-8x, h100-autoparallel, h200-8x, or a
path to a JSON file [unknown-cluster]
```

The tag stays the same when the wording of a message changes, so scripts can match it.
`tools/diagnostics_page.py` generates this page from `heddle/core/base/diagnostics.def` and
`heddle/compile/manager/remarks.def`.

## Errors

| tag | when it appears, and how to respond |
| --- | --- |
"""
REMARKS_HEAD = """
## Remarks

`--remarks` prints these. A remark changes nothing; it reports a declined opportunity or a fact.

| tag | when it appears, and how to respond |
| --- | --- |
"""


def rows(path):
    for comment, name, meaning in ENTRY.findall(path.read_text()):
        text = " ".join(line[3:] for line in comment.splitlines())
        if not text:
            raise SystemExit(f"{path.relative_to(ROOT)}: `{name}` has no comment above it")
        if meaning:
            text = f"{meaning[0].upper()}{meaning[1:]}. {text}"
        yield f"| `{name}` | {text} |\n"


def main():
    text = HEAD + "".join(rows(DIAGNOSTICS)) + REMARKS_HEAD + "".join(rows(REMARKS))
    if "--check" not in sys.argv:
        PAGE.write_text(text)
    elif not PAGE.exists() or PAGE.read_text() != text:
        print("docs/diagnostics.md is out of date; run tools/diagnostics_page.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
