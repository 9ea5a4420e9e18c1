#!/usr/bin/env python3
"""Commands with a tokenizer: tokenize_command.py HEDDLE

`heddle tokenize` writes the tokens of the `tokenizers` package, whatever the number of threads.
`train`, `generate` and `export` take the tokenizer. Damaged inputs end in errors with positions.
Skipped where the package is missing.
"""
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import time

try:
    import tokenizers
    import families
except ImportError:
    print("skipped: commands with a tokenizer: the package is not installed")
    sys.exit(77)

END = "<|endoftext|>"
MODEL = ["--model=llama3", "--flavor=debugmodel", "--training.seq_len=32", "--training.steps=2", "--precision=f32"]


def documents_of(folder):
    """The documents of a pair of Megatron-LM's files."""
    index = pathlib.Path(folder, "train.idx").read_bytes()
    assert index.startswith(b"MMIDIDX\0\0")
    version, code, sequences, bounds = struct.unpack_from("<QBQQ", index, 9)
    assert version == 1 and bounds == sequences + 1
    lengths = struct.unpack_from(f"<{sequences}i", index, 34)
    width = {8: "H", 4: "i"}[code]
    tokens = pathlib.Path(folder, "train.bin").read_bytes()
    tokens = struct.unpack(f"<{len(tokens) // struct.calcsize(width)}{width}", tokens)
    assert sum(lengths) == len(tokens)
    at = 0
    for length in lengths:
        yield list(tokens[at:at + length])
        at += length


def tensors_of(path):
    """The lists of integers of a safetensors file."""
    content = pathlib.Path(path).read_bytes()
    size = struct.unpack_from("<Q", content)[0]
    tensors = {}
    for name, entry in json.loads(content[8:8 + size]).items():
        begin, end = entry["data_offsets"]
        code = {"I32": "i", "U8": "B"}[entry["dtype"]]
        tensors[name] = list(struct.unpack(f"<{entry['shape'][0]}{code}", content[8 + size + begin:8 + size + end]))
    return tensors


class Test:
    def __init__(self, heddle, folder):
        self.heddle, self.folder = heddle, pathlib.Path(folder)
        self.corpus = self.folder / "corpus"
        self.corpus.mkdir()
        self.tokenizer_folder = self.folder / "tokenizer"
        self.tokenizer_folder.mkdir()
        docs = sorted(pathlib.Path(__file__).resolve().parents[2].glob("docs/*.md"))[:6]
        self.texts = [doc.read_text(encoding="utf-8") for doc in docs]
        families.SIZE = 600
        self.tokenizer = families.gpt2(self.texts)
        self.tokenizer.save(str(self.tokenizer_folder / "tokenizer.json"))
        (self.tokenizer_folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": END}}))

    def run(self, *args, code=0, error="", **options):
        done = subprocess.run([self.heddle, *map(str, args)], capture_output=True, text=True, encoding="utf-8", errors="replace", **options)
        command = " ".join(map(str, args))
        assert done.returncode == code, f"{command}: exit code {done.returncode}, expected {code}\n{done.stderr}"
        assert error in done.stderr, f"{command}: expected {error!r} in\n{done.stderr}"
        return done.stdout

    def tokenize(self, *args, **expected):
        return self.run("tokenize", f"--tokenizer={self.tokenizer_folder}", *args, **expected)

    def test_files(self):
        (self.corpus / "a.md").write_text(self.texts[0], encoding="utf-8")
        lines = [json.dumps({"text": text, "content": "other"}) for text in self.texts[1:] * 30]
        (self.corpus / "b.jsonl").write_text("\n\n".join(lines) + "\n", encoding="utf-8")
        (self.corpus / "c.dat").write_bytes(b"\xff\xfe\x00")
        (self.corpus / "d.txt").write_text(f"Hello.{END}", encoding="utf-8")
        end = self.tokenizer.token_to_id(END)
        expected = [self.tokenizer.encode(text).ids + [end] for text in [self.texts[0], *self.texts[1:] * 30, "Hello."]]
        out = []
        for threads in (1, 3):
            folder = self.folder / f"out{threads}"
            found = json.loads(self.tokenize(self.corpus, f"--output={folder}", f"--threads={threads}", "--json"))
            assert found == {"documents": len(expected), "tokens": sum(map(len, expected)),
                             "counted": sum(map(len, expected)), "files": 3, "skipped": 1,
                             "vocabulary": self.tokenizer.get_vocab_size()}, found
            assert list(documents_of(folder)) == expected
            assert sorted(os.listdir(folder)) == ["train.bin", "train.idx"]
            out.append([(folder / name).read_bytes() for name in ("train.bin", "train.idx")])
        assert out[0] == out[1]
        self.tokenize(self.corpus / "b.jsonl", "--key=content", f"--output={self.folder / 'key'}", "--document_end=a")
        word = self.tokenizer.encode("other").ids + self.tokenizer.encode("a").ids
        assert all(document == word for document in documents_of(self.folder / "key"))

    def test_pairs(self):
        """Tokens of prompts do not count, whether they are written or made when training starts."""
        end = self.tokenizer.token_to_id(END)
        texts = [text[at:at + 120] for text in self.texts for at in range(0, 2400, 120)]
        pairs = list(zip(texts[::2], texts[1::2])) + [("", "No prompt."), ("No answer.", ""), ("Prompt:", " word")]
        path = self.folder / "pairs.jsonl"
        path.write_text("".join(json.dumps({"prompt": a, "completion": b}) + "\n" for a, b in pairs), encoding="utf-8")
        folder = self.folder / "pairs"
        found = json.loads(self.tokenize(path, self.corpus / "d.txt", f"--output={folder}", "--threads=3", "--json"))
        assert os.listdir(folder) == ["train.safetensors"]
        tensors = tensors_of(folder / "train.safetensors")
        lengths = tensors["document_lengths"]
        assert found["documents"] == len(lengths) == len(pairs) + 1
        assert found["counted"] == sum(tensors["loss_mask"]) and found["tokens"] == len(tensors["tokens"]) == sum(lengths)
        at = 0
        for (prompt, completion), length in zip(pairs, lengths):
            tokens, mask = tensors["tokens"][at:at + length], tensors["loss_mask"][at:at + length]
            at += length
            assert tokens == self.tokenizer.encode(prompt + completion).ids + [end]
            assert self.tokenizer.decode(tokens) == prompt + completion
            # The mask is 0 for the first tokens, whose text is the prompt or all of it but a part of a word.
            prompts = mask.count(0)
            assert mask == [0] * prompts + [1] * (length - prompts) and mask[-1] == 1
            alone = self.tokenizer.encode(prompt).ids
            assert tokens[:prompts] == alone[:prompts] and (prompts == len(alone) or tokens[prompts] != alone[prompts])
        # A text among pairs counts completely.
        assert all(tensors["loss_mask"][at:])
        # A template may have put the tokenizer's first tokens into the prompt.
        rendered = self.folder / "rendered.jsonl"
        rendered.write_text(json.dumps({"question": f"{END}Hello", "answer": " world"}), encoding="utf-8")
        plain = self.folder / "plain.jsonl"
        plain.write_text(json.dumps({"question": "Hello", "answer": " world"}), encoding="utf-8")
        tokenizer = self.folder / "beginning"
        tokenizer.mkdir()
        content = json.loads((self.tokenizer_folder / "tokenizer.json").read_text(encoding="utf-8"))
        content["post_processor"] = {"type": "TemplateProcessing", "pair": [],
                                     "single": [{"SpecialToken": {"id": END, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                                     "special_tokens": {END: {"id": END, "ids": [end], "tokens": [END]}}}
        (tokenizer / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
        both = []
        for name in (rendered, plain):
            self.run("tokenize", f"--tokenizer={tokenizer}", name, "--prompt=question", "--completion=answer",
                     f"--output={name.with_suffix('')}")
            both.append(tensors_of(name.with_suffix("") / "train.safetensors"))
        assert both[0] == both[1] and both[0]["tokens"].count(end) == 1, both

    def test_masked_training(self):
        """Pairs train the same weights whether their tokens are written or made when training starts."""
        vocab = f"--model.vocab_size={self.tokenizer.get_vocab_size()}"
        losses = []
        for data in ([f"--training.dataset={self.folder / 'pairs'}"],
                     [f"--training.dataset={self.folder / 'pairs.jsonl'}", f"--tokenizer={self.tokenizer_folder}"]):
            path = self.folder / f"losses{len(losses)}.jsonl"
            out = self.run("train", *MODEL, vocab, *data, "--training.shuffle=false", f"--metrics.jsonl={path}")
            assert "with a loss mask" in out, out
            losses.append([json.loads(line)["loss"] for line in path.read_text(encoding="utf-8").splitlines()])
        assert losses[0] == losses[1] and len(losses[0]) == 2, losses

    def test_mistakes(self):
        bad = self.folder / "bad.jsonl"
        out = f"--output={self.folder / 'bad'}"
        bad.write_text('{"text": "a"}\n\n{"text": "b"\n', encoding="utf-8")
        self.tokenize(bad, out, code=1, error=f"{bad}:3:13: not JSON")
        bad.write_text('{"text": "a"}\n{"txt": "b"}\n', encoding="utf-8")
        self.tokenize(bad, out, code=1, error=f"{bad}:2:1: the line has no `text`")
        bad.write_text('{"text": "a"}\n{"text": 7}\n', encoding="utf-8")
        self.tokenize(bad, out, code=1, error=f"{bad}:2:10: `text` is 7, expected text")
        bad.write_bytes(b'{"text": "a"}\n{"text": "\xff"}\n')
        self.tokenize(bad, out, code=1, error=f"{bad}:2:11: not JSON: a text is not UTF-8")
        assert not (self.folder / "bad").exists() and not (self.folder / "bad.partial").exists()
        bad.write_text('{"prompt": "a", "completion": "b"}\n{"prompt": "a"}\n', encoding="utf-8")
        self.tokenize(bad, out, code=1, error=f"{bad}:2:1: the line has no `completion`; `heddle tokenize --completion` names the text")
        bad.write_text('{"prompt": ["a"], "completion": "b"}\n', encoding="utf-8")
        self.tokenize(bad, out, code=1, error=f"{bad}:1:12: `prompt` is a list, expected text; if it has messages, apply")
        bad.write_text('{"messages": [{"role": "user", "content": "a"}]}\n', encoding="utf-8")
        self.tokenize(bad, out, code=1, error=f"{bad}:1:14: the line has `messages` instead of `text`; apply the chat")
        bad.write_text('{"prompt": "a", "completion": "b"}\n\n["a"]\n', encoding="utf-8")
        self.tokenize(bad, out, code=1, error=f"{bad}:3:1: the line is a list, expected an object")
        bad.write_text('{"prompt": "a", "completion": "b"}\n{"prompt": "a"', encoding="utf-8")
        self.tokenize(bad, out, code=1, error=f"{bad}:2:15: not JSON")
        assert not (self.folder / "bad").exists() and not (self.folder / "bad.partial").exists()
        self.tokenize(self.corpus / "c.dat", out, code=1, error="byte 0 is not UTF-8")
        self.tokenize(self.corpus, f"--output={self.corpus}", code=1, error="is not an empty folder")
        self.tokenize(self.corpus, out, "--document_end=<nothing>", code=1, error="which is not a token of")
        self.run("tokenize", f"--tokenizer={self.folder}", self.corpus, out, code=1, error="tokenizer.json")

    def test_pipe(self):
        """Standard input in several parts gives the tokens of the file."""
        lines = "".join(json.dumps({"text": text}) + "\n\n" for text in self.texts[1:])
        times = (3 << 20) // len(lines)
        lines *= times
        file = self.folder / "c.jsonl"
        file.write_text(lines, encoding="utf-8")
        self.tokenize(file, f"--output={self.folder / 'file'}")
        self.tokenize("-", f"--output={self.folder / 'pipe'}", "--threads=3", input=lines.rstrip())
        for name in ("train.bin", "train.idx"):
            assert (self.folder / "file" / name).read_bytes() == (self.folder / "pipe" / name).read_bytes()
        out = f"--output={self.folder / 'bad'}"
        place = f"<stdin>:{2 * times * len(self.texts[1:]) + 1}:9: not JSON"
        self.tokenize("-", out, input=lines + '{"text" 1}', code=1, error=place)
        self.tokenize("-", out, input="\n\n", code=1, error="the inputs have no text")
        self.tokenize("-", self.corpus, out, code=1, error="`-`, standard input, is one of 2 inputs, expected to be the only one")
        self.tokenize("-", out, code=1, error="cannot read standard input", preexec_fn=lambda: os.close(0))
        assert not (self.folder / "bad").exists() and not (self.folder / "bad.partial").exists()

    def most_memory(self, *args):
        """The most memory of a command on one core, in bytes, without pages of files."""
        one = {min(os.sched_getaffinity(0))}
        with subprocess.Popen([self.heddle, *map(str, args)], stdout=subprocess.DEVNULL, preexec_fn=lambda: os.sched_setaffinity(0, one)) as run:
            most = 0
            while run.poll() is None:
                status = pathlib.Path(f"/proc/{run.pid}/status").read_text(encoding="ascii")
                most = max([most, *(1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon"))])
                time.sleep(0.005)
            assert run.returncode == 0, args
        return most

    def test_memory(self):
        """Text of any size takes the same memory, as does its number of tokens."""
        text = "".join(json.dumps({"text": text}) + "\n" for text in self.texts)
        sizes = {"small": 2 << 20, "large": 18 << 20}
        vocab = f"--model.vocab_size={self.tokenizer.get_vocab_size()}"
        most = {"tokenize": [], "train": []}
        for name, size in sizes.items():
            file = self.folder / f"{name}.jsonl"
            file.write_text(text * (size // len(text)), encoding="utf-8")
            flags = [f"--tokenizer={self.tokenizer_folder}"]
            most["tokenize"].append(self.most_memory("tokenize", *flags, file, f"--output={self.folder / name}"))
            most["train"].append(self.most_memory("train", *MODEL, vocab, *flags, f"--training.dataset={file}"))
        tokens = 2 * (self.folder / "large/train.bin").stat().st_size
        print(f"{tokens / 1e6:.0f} MB of tokens; memory for little and much text: {most}")
        for command, (small, large) in most.items():
            assert large - small < tokens / 2, f"{command}: {small} and {large} bytes of memory, {tokens} bytes of tokens"

    def test_training(self):
        tokens = self.folder / "run_tokens"
        vocab = f"--model.vocab_size={self.tokenizer.get_vocab_size()}"
        self.run("train", *MODEL, vocab, f"--training.dataset={self.folder / 'out1'}", f"--checkpoint.folder={tokens}")
        text = self.folder / "run_text"
        job = [*MODEL, vocab, f"--training.dataset={self.corpus}", f"--tokenizer={self.tokenizer_folder}", f"--checkpoint.folder={text}"]
        self.run("train", *job)
        mixed = f"--training.dataset={self.corpus / 'a.md'}:0.25,{self.corpus / 'b.jsonl'}:0.75"
        data = self.run("train", *MODEL, vocab, mixed, f"--tokenizer={self.tokenizer_folder}")
        assert "2 sources in proportions 1 : 3\n" in data and f"0.75 of {self.corpus / 'b.jsonl'}: text, encoded: " in data, data
        bad = self.folder / "bad.jsonl"
        bad.write_text('{"text": "a"}\n{"txt": "b"}\n', encoding="utf-8")
        self.run("train", *MODEL, vocab, f"--training.dataset={bad}", f"--tokenizer={self.tokenizer_folder}", code=1,
                 error=f"{bad}:2:1: the line has no `text`; `heddle tokenize --key` names the text")
        # The same tokens give the same weights, so the same text.
        generate = ["--prompt=The graph", "--tokens=20", "--temperature=1"]
        named = self.run("generate", f"--checkpoint={tokens}", f"--tokenizer={self.tokenizer_folder}", *generate)
        assert named == self.run("generate", f"--checkpoint={text}", *generate)
        assert named.startswith("The graph")
        assert named == self.run("generate", f"--checkpoint={text}", *generate, "--stream")
        found = json.loads(self.run("generate", f"--checkpoint={text}", *generate, "--json"))
        assert found["prompt"] == self.tokenizer.encode("The graph").ids
        self.run("generate", f"--checkpoint={tokens}", *generate, code=1, error="--tokenizer names a tokenizer")
        self.run("export", f"--checkpoint={text}", f"--hf={self.folder / 'hf'}")
        for name in ("tokenizer.json", "tokenizer_config.json"):
            assert (self.folder / "hf" / name).read_bytes() == (self.tokenizer_folder / name).read_bytes()
        # Another tokenizer, with the same tokens.
        path = self.tokenizer_folder / "tokenizer.json"
        content = path.read_text(encoding="utf-8")
        path.write_text(content + "\n", encoding="utf-8")
        longer = [flag.replace("--training.steps=2", "--training.steps=3") for flag in job]
        self.run("train", *longer, code=1, error="was trained on other data: tokenizer")
        path.write_text(content, encoding="utf-8")
        small = [*MODEL, "--model.vocab_size=256", f"--training.dataset={self.corpus}", f"--tokenizer={self.tokenizer_folder}"]
        self.run("train", *small, code=1, error="but the vocabulary of the model has 256")


def main():
    with tempfile.TemporaryDirectory() as folder:
        test = Test(sys.argv[1], folder)
        test.test_files()
        test.test_pairs()
        test.test_mistakes()
        test.test_pipe()
        if "--no-training" not in sys.argv:
            test.test_training()
            test.test_masked_training()
            test.test_memory()
    print("commands with a tokenizer: as expected")
    return 0


if __name__ == "__main__":
    sys.exit(main())
