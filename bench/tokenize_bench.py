#!/usr/bin/env python3
"""Encoding against the `tokenizers` package: tokenize_bench.py HEDDLE [RESULT] [--megabytes N]
[--threads N]

Documents of English and code, as JSONL. For each configuration both encode all of them with the
same number of threads, in turns; the ratio is that of the best times. `heddle tokenize` also reads
JSONL and writes its files.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import sysconfig
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "test/tokenizer"))
ROUNDS = 2


def documents(megabytes):
    """The project's docs and sources, and Python's library, repeated."""
    files = [*ROOT.glob("docs/**/*.md"), *ROOT.glob("heddle/**/*.cc"), *ROOT.glob("heddle/**/*.h"),
             *pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py")]
    texts = [file.read_text(encoding="utf-8", errors="ignore") for file in sorted(files)]
    size = sum(map(len, texts))
    return texts, texts * max(1, round(megabytes * 1e6 / size))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("heddle")
    parser.add_argument("result", nargs="?")
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--families", default="gpt2,llama3,llama2")
    options = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = str(options.threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    try:
        import families
        import tokenizers
    except ImportError:
        print("skipped: encoding against tokenizers: the package is not installed")
        return 0
    families.SIZE = 32000
    base, texts = documents(options.megabytes)
    size = sum(len(text.encode()) for text in texts) / 1e6
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/texts.jsonl", "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"text": text}) + "\n" for text in texts)
        for name in options.families.split(","):
            families.FAMILIES[name](base).save(f"{folder}/tokenizer.json")
            tokenizer = tokenizers.Tokenizer.from_file(f"{folder}/tokenizer.json")
            theirs, ours = [], []
            for _ in range(ROUNDS):
                begin = time.perf_counter()
                count = sum(len(one.ids) for one in tokenizer.encode_batch_fast(texts))
                theirs.append(time.perf_counter() - begin)
                subprocess.check_call(["rm", "-rf", f"{folder}/out"])
                begin = time.perf_counter()
                out = subprocess.run([options.heddle, "tokenize", f"--tokenizer={folder}", f"{folder}/texts.jsonl", f"--output={folder}/out",
                                      f"--threads={options.threads}", "--json"], check=True, capture_output=True, text=True).stdout
                ours.append(time.perf_counter() - begin)
                if json.loads(out)["tokens"] != count:
                    sys.exit(f"{name}: {json.loads(out)['tokens']} tokens, expected {count}")
            rates = [size / min(theirs), size / min(ours)]
            results[name] = {"megabytes": size, "threads": options.threads, "tokenizers_mb_s": rates[0], "heddle_mb_s": rates[1]}
            print(f"{name}: {size:.0f} MB, {options.threads} threads: tokenizers {rates[0]:.1f} MB/s, heddle {rates[1]:.1f} MB/s, "
                  f"{rates[1] / rates[0]:.1f} times as fast")
    if options.result:
        pathlib.Path(options.result).write_text(json.dumps(results, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
