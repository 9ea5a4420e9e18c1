#!/usr/bin/env python3
"""Compares tokens and decoded texts with those of the `tokenizers` package: against_tokenizers.py
ENCODE_TEXTS [--texts N] [--only NAME]

For each configuration of families.py, random texts in 20 scripts, with emoji, marks, control
characters, spaces, digits and code. Skipped where the package is missing.
"""
import argparse
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

try:
    import tokenizers  # noqa: F401
    from families import FAMILIES
except ImportError:
    print("skipped: tokens against tokenizers: the package is not installed")
    sys.exit(77)

# Ranges of scripts and symbols.
SCRIPTS = {
    "latin": (0x41, 0x7A), "latin_1": (0xC0, 0xFF), "latin_extended": (0x100, 0x24F), "greek": (0x391, 0x3C9), "cyrillic": (0x410, 0x44F),
    "armenian": (0x531, 0x556), "hebrew": (0x5D0, 0x5EA), "arabic": (0x621, 0x652), "devanagari": (0x904, 0x94D), "bengali": (0x985, 0x9A8),
    "tamil": (0xB85, 0xB95), "thai": (0xE01, 0xE3A), "tibetan": (0xF40, 0xF6C), "georgian": (0x10D0, 0x10F5), "hangul_letters": (0x1100, 0x11FF),
    "ethiopic": (0x1200, 0x1248), "khmer": (0x1780, 0x17B3), "mongolian": (0x1800, 0x1842), "hiragana": (0x3041, 0x3096), "katakana": (0x30A1, 0x30FA),
    "chinese": (0x4E00, 0x9FA5), "hangul": (0xAC00, 0xD7A3), "full_width": (0xFF01, 0xFF5E), "mathematical": (0x1D400, 0x1D454),
}
OTHERS = {
    "emoji": (0x1F300, 0x1F64F), "marks": (0x300, 0x36F), "control": (0x0, 0x1F), "more_control": (0x7F, 0x9F), "digits": (0x30, 0x39),
    "numbers": (0x2150, 0x2189), "punctuation": (0x21, 0x2F), "general": (0x2000, 0x206F), "symbols": (0x2190, 0x2200), "private": (0xE000, 0xE010),
    "ligatures": (0xFB00, 0xFB06), "selectors": (0xFE00, 0xFE0F), "arabic_digits": (0x660, 0x669), "any": (0x80, 0xD7FF), "far": (0x10000, 0x10FFFF),
}
PIECES = [" ", "  ", "   ", " " * 13, " " * 30, "\n", "\n\n", "\n\n\n", "\r\n", "\t", "\u00a0", "\u3000", "\u1680", "\u180e", " \u180e!", "a\u180e \u180e", "\u2028", "\x85", "\ufeff", "\u200d", "▁", "▁▁▁",
          "'s", "'S", "'LL", "'re", "'ſ", "don't", "1234567", "3.14", "0x1F", "İstanbul", "ẞ", "ﬁ", "½", "²", "word", "words", " word ", "_word", "for (int i = 0; i < n; ++i) {\n\t\tx[i] += 1;\n}\n",
          "def f(x):\n    return x ** 2\n", "https://example.org/a?b=c#d", "👨‍👩‍👧‍👦", "🇩🇪", "é", "e\u0301", "각", "\u1100\u1161\u11a8", "ö̲", "<0x0A>", "<unk>", "<s>", "</s>", "<mask>", " <mask> ",
          "<|endoftext|>", "<|user|>", "<|user|>\n\n ", " <|placeholder|>  ", "<|begin_of_text|>", "<tool_call>", "<table>", "<end>", "<|end", "[INST]", "|||IP_ADDRESS|||",
          "<｜begin▁of▁sentence｜>", "The quick brown fox", "Straße", "ΣΊΣΥΦΟΣ", "ａｂｃ１２３", "\u0000", "\ufffd", "a" * 50, "!?!?!?", "...", "—", "“quotes”"]


def corpus():
    root = pathlib.Path(__file__).resolve().parents[2]
    files = sorted([*root.glob("docs/*.md"), *root.glob("heddle/core/**/*.h"), *root.glob("heddle/core/**/*.cc")])
    return [file.read_text(encoding="utf-8") for file in files]


def character(choose, names):
    low, high = {**SCRIPTS, **OTHERS}[choose.choice(names)]
    while True:
        value = choose.randint(low, high)
        if not 0xD800 <= value <= 0xDFFF and not (value & 0xFFFF) >= 0xFFFE:
            return chr(value)


def assigned(text):
    """Without characters that are not in every version of Unicode that the libraries have."""
    import unicodedata
    return "".join(c for c in text if unicodedata.ucd_3_2_0.category(c) != "Cn" or c in "\u180e" or ord(c) in range(0x1F300, 0x1F600))


def random_text(choose, words):
    parts = []
    for _ in range(choose.randint(1, 8)):
        kind = choose.random()
        if kind < 0.3:
            parts.append(choose.choice(PIECES))
        elif kind < 0.5:
            parts.append(" ".join(choose.choices(words, k=choose.randint(1, 6))))
        elif kind < 0.85:
            script = choose.choice(list(SCRIPTS))
            parts.append("".join(character(choose, [script]) if choose.random() < 0.85 else " " for _ in range(choose.randint(1, 12))))
        else:
            names = [*SCRIPTS, *OTHERS]
            parts.append("".join(character(choose, names) for _ in range(choose.randint(1, 8))))
    return assigned(choose.choice(["", "", " "]).join(parts))


def ours(program, folder, texts):
    with open(f"{folder}/texts", "wb") as file:
        for text in texts:
            data = text.encode()
            file.write(struct.pack("<I", len(data)) + data)
    subprocess.check_call([program, f"{folder}/tokenizer.json", f"{folder}/texts", f"{folder}/tokens"])
    data = pathlib.Path(f"{folder}/tokens").read_bytes()
    at = 0
    for _ in texts:
        count, = struct.unpack_from("<I", data, at)
        tokens = list(struct.unpack_from(f"<{count}I", data, at + 4))
        at += 4 + 4 * count
        decoded = []
        for _ in range(2):
            size, = struct.unpack_from("<I", data, at)
            decoded.append(data[at + 4:at + 4 + size].decode())
            at += 4 + size
        yield tokens, decoded
    assert at == len(data)


def compare(program, name, documents, texts):
    tokenizer = FAMILIES[name](documents)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(f"{folder}/tokenizer.json")
        # The file, as others read it.
        tokenizer = tokenizers.Tokenizer.from_file(f"{folder}/tokenizer.json")
        expected = tokenizer.encode_batch(texts)
        differ = 0
        for text, one, (tokens, decoded) in zip(texts, expected, ours(program, folder, texts)):
            right = [tokenizer.decode(one.ids), tokenizer.decode(one.ids, skip_special_tokens=False)]
            if tokens == one.ids and decoded == right:
                continue
            differ += 1
            if differ <= 3:
                print(f"{name}: {text!r}\n  tokens  {tokens}\n  expected {one.ids}\n  {[tokenizer.id_to_token(t) for t in tokens]}\n  {one.tokens}")
                if decoded != right:
                    print(f"  decoded {decoded!r}\n  expected {right!r}")
        tokens = sum(len(one.ids) for one in expected)
        print(f"{name}: {len(texts)} texts, {tokens} tokens, {tokenizer.get_vocab_size()} in the vocabulary, {differ} differ")
        return differ


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--texts", type=int, default=100_000 if os.environ.get("HEDDLE_SOAK") == "1" else 1500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=FAMILIES)
    options = parser.parse_args()
    documents = corpus()
    choose = random.Random(options.seed)
    # Some other scripts, so that tokens of theirs exist.
    documents += [" \u180e! a\u180e" * 50]
    documents += ["".join(character(choose, [script]) for _ in range(200)) + " " for script in SCRIPTS] * 3
    words = " ".join(documents[:20]).split()
    texts = ["", " ", "\n"] + PIECES + [random_text(choose, words) for _ in range(options.texts)]
    texts += ["\n".join(choose.sample(documents, 1)) for _ in range(3)]
    differ = sum(compare(options.program, name, documents, texts) for name in ([options.only] if options.only else FAMILIES))
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
