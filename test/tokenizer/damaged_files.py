#!/usr/bin/env python3
"""Damages tokenizer.json at random: damaged_files.py ENCODE_TEXTS [--files N] [--seed N]

Every damaged file must be refused with a position, or encode a text; crashes and hangs fail.
Skipped where the `tokenizers` package is missing.
"""
import argparse
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

try:
    import families
except ImportError:
    print("skipped: damaged tokenizers: the package is not installed")
    sys.exit(77)

SECONDS = 60
VALUES = [None, True, 0, -1, 1, 2**22, 2**31, 2**63, 1e300, "", " ", "a", "▁", "\u0120", "(", "(a+)+$", "a" * 3000, [], {}, [[]], {"type": "Sequence"}]
TEXT = "Hello ▁ world  <|endoftext|> 123 héllo\n\n" + "a" * 200 + " <s> word İ\u0301 \U0001F600"


def places(value):
    """Containers and keys of all fields, and of a few items of long lists."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in list(items)[:40]:
        yield value, key
        yield from places(child)


def damaged(choose, text):
    kind = choose.random()
    if kind < 0.4:
        data = bytearray(text.encode())
        for _ in range(choose.randint(1, 4)):
            at = choose.randrange(len(data))
            if choose.random() < 0.5:
                data[at] = choose.randrange(256)
            else:
                del data[at:at + choose.randint(1, 20)]
        return bytes(data[:choose.randrange(len(data))] if choose.random() < 0.1 else data)
    content = json.loads(text)
    for _ in range(choose.randint(1, 3)):
        holder, key = choose.choice(list(places(content)))
        try:
            if choose.random() < 0.2:
                del holder[key]
            else:
                other, other_key = choose.choice(list(places(content)))
                holder[key] = choose.choice(VALUES) if choose.random() < 0.7 else json.loads(json.dumps(other[other_key]))
        except (KeyError, IndexError):
            pass
    return json.dumps(content, ensure_ascii=choose.random() < 0.5).encode()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--files", type=int, default=20_000 if os.environ.get("HEDDLE_SOAK") == "1" else 400)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    choose = random.Random(options.seed)
    families.SIZE = 300
    texts = ["Hello world, words and 123 numbers.\n"] * 4
    files = [families.FAMILIES[name](texts).to_str() for name in ("gpt2", "llama3", "phi3", "gemma", "deepseek3", "unknown_fused", "merged_with_next")]
    accepted = 0
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "tokenizer.json")
        pathlib.Path(folder, "texts").write_bytes(struct.pack("<I", len(TEXT.encode())) + TEXT.encode())
        for number in range(options.files):
            path.write_bytes(damaged(choose, choose.choice(files)))
            done = subprocess.run([options.program, path, f"{folder}/texts", f"{folder}/out"], capture_output=True, timeout=SECONDS)
            accepted += done.returncode == 0
            refused = done.returncode == 1 and b"[tokenizer]" in done.stderr
            if done.returncode != 0 and not refused:
                kept = pathlib.Path(tempfile.gettempdir(), f"damaged_tokenizer_{options.seed}_{number}.json")
                kept.write_bytes(path.read_bytes())
                print(f"exit code {done.returncode} for {kept}: {done.stderr.decode(errors='replace')[:500]}")
                return 1
    print(f"{options.files} damaged files: {accepted} encode a text, the others are refused")
    return 0 if 0 < accepted < options.files else 1


if __name__ == "__main__":
    sys.exit(main())
