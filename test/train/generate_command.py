#!/usr/bin/env python3
"""Stop strings, sampling and threads of `heddle generate`: generate_command.py HEDDLE"""
import json
import subprocess
import sys
import tempfile

PROMPT = "// The "
MODEL = ["--model.n_layers=2", "--model.dim=64", "--model.n_heads=4", "--model.n_kv_heads=2", "--model.ffn_dim=128",
         "--model.vocab_size=256"]


def main():
    heddle = sys.argv[1]

    def run(*args, code=0):
        done = subprocess.run([heddle, *args], capture_output=True, text=True)
        assert done.returncode == code, f"{args}: exit code {done.returncode}, expected {code}\n{done.stderr}"
        return done.stdout if code == 0 else done.stderr

    with tempfile.TemporaryDirectory() as folder:
        # Enough steps for a text of letters.
        run("train", *MODEL, "--training.dataset=text", "--training.seq_len=32", "--training.steps=40", "--optimizer.lr=1e-2",
            "--lr_scheduler.warmup_steps=0", f"--checkpoint.folder={folder}")

        def generate(*args, **expected):
            return run("generate", f"--checkpoint={folder}", f"--prompt={PROMPT}", *args, **expected)

        # Longer than the cache.
        sampled = ["--tokens=60", "--temperature=1", "--seed=3"]
        whole = generate(*sampled)[len(PROMPT):-1]
        found = json.loads(generate(*sampled, "--json"))
        assert found["text"] == whole and "stopped" not in found, found
        assert len(whole) > 55, whole
        # The bytes of a stop string are several tokens.
        for begin, length in ((0, 2), (5, 1), (7, 3), (50, 4)):
            stop = whole[begin:begin + length]
            expected = whole[:whole.index(stop)]
            for stops in ([stop], ["never in the text", stop], [stop, whole[begin:begin + length + 1]]):
                flags = [*sampled, *(f"--stop={text}" for text in stops)]
                assert generate(*flags) == PROMPT + expected + "\n", stops
                assert generate(*flags, "--stream") == PROMPT + expected + "\n", stops
                found = json.loads(generate(*flags, "--json"))
                assert found["text"] == expected and found["stopped"] is True, found
                assert len(found["tokens"]) < 60 or begin == 50, found
        # A text may end with the beginning of a stop string.
        stop = f"--stop={whole[-2:]} and more"
        assert generate(*sampled, stop) == generate(*sampled, stop, "--stream") == PROMPT + whole + "\n"
        assert json.loads(generate(*sampled, stop, "--json"))["stopped"] is False
        assert generate(*sampled, "--threads=1") == generate(*sampled, "--threads=3") == PROMPT + whole + "\n"
        assert generate(*sampled, "--top_p=1e-9") == generate("--tokens=60") != PROMPT + whole + "\n"
        assert "it is a probability above 0, at most 1" in generate("--top_p=0", code=1)
        assert "--stop is empty" in generate("--stop=", code=1)
    print("generate: as expected")
    return 0


if __name__ == "__main__":
    sys.exit(main())
