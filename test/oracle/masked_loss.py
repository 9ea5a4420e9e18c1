#!/usr/bin/env python3
"""Trains on tokens with a loss mask: masked_loss.py HEDDLE

Compares loss and gradients with a Llama of transformers whose labels are -100 where the mask is 0.
The data are the same on every mesh and after a resume. A batch without a label that counts has a
loss of 0. Skipped without transformers."""
import copy
import json
import os
import struct
import subprocess
import sys
import tempfile

from hf_models import SHARED

ROWS, LENGTH, STEPS = 2, 48, 3
# Step 2 has one row of prompts, and step 3 has two.
PROMPTS = (2, 4, 5)


def write_tokens(torch, path, vocab):
    """Writes rows of documents of 20 tokens: a prompt of 13, and a completion of 7. Returns tokens
    and labels of every step."""
    size = STEPS * ROWS * LENGTH + 1
    tokens = torch.randint(vocab, [size], generator=torch.Generator().manual_seed(7), dtype=torch.int32)
    mask = (torch.arange(size) % 20 >= 13).to(torch.uint8)
    for row in PROMPTS:
        mask[row * LENGTH + 1:(row + 1) * LENGTH + 1] = 0
    lengths = torch.tensor([20] * (size // 20) + [size % 20], dtype=torch.int32)
    header, data = {}, b""
    for name, kind, tensor in (("tokens", "I32", tokens), ("document_lengths", "I32", lengths), ("loss_mask", "U8", mask)):
        raw = tensor.numpy().tobytes()
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    header = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + data)
    labels = torch.where(mask == 1, tokens.long(), -100)
    shape = (STEPS, ROWS, LENGTH)
    return tokens.long()[:-1].view(shape), labels[1:].view(shape)


class Test:
    def __init__(self, heddle, folder):
        import torch
        import transformers
        self.torch, self.heddle, self.folder = torch, heddle, folder
        self.data, self.model_folder = os.path.join(folder, "train.safetensors"), os.path.join(folder, "model")
        self.model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SHARED, num_key_value_heads=2, rope_theta=1e4))
        self.model.save_pretrained(self.model_folder)
        self.tokens, self.labels = write_tokens(torch, self.data, self.model.config.vocab_size)

    def command(self, name, *flags, model=None):
        rows = [] if any("local_batch_size" in flag for flag in flags) else [f"--training.local_batch_size={ROWS}"]
        return [self.heddle, name, "--model=hf", f"--checkpoint.initial_load_path={model or self.model_folder}",
                "--precision=f32", f"--training.seq_len={LENGTH}", f"--training.dataset={self.data}", "--training.shuffle=false",
                *rows, *flags]

    def run(self, *args, **options):
        done = subprocess.run(self.command(*args, **options), capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{args}: {done.stderr}"
        return done.stdout

    def losses(self, name, *flags):
        path = os.path.join(self.folder, f"{name}.jsonl")
        if os.path.exists(path):
            os.remove(path)
        self.run("train", f"--metrics.jsonl={path}", *flags)
        with open(path, encoding="utf-8") as file:
            return [json.loads(line)["loss"] for line in file]

    def tensors(self, name, *flags, model=None):
        """Tensors of a checkpoint after one step without clipping."""
        from safetensors.torch import load_file
        saved = os.path.join(self.folder, name)
        self.run("train", "--training.steps=1", f"--checkpoint.folder={saved}", "--training.max_norm=0", "--optimizer.beta1=0",
                 *flags, model=model)
        return load_file(os.path.join(saved, "step-00000001", "rank-00000.safetensors"))

    def their_loss(self, step):
        logits = self.model.eval()(self.tokens[step]).logits
        total = self.torch.nn.functional.cross_entropy(logits.flatten(0, 1), self.labels[step].flatten(), reduction="sum")
        return total / max(1, int((self.labels[step] != -100).sum()))

    def test_transformers(self):
        """A rate of 0 keeps the weights, so that every step has transformers' loss."""
        ours = self.losses("still", f"--training.steps={STEPS}", "--optimizer.lr=0")
        theirs = [self.their_loss(step).item() for step in range(STEPS)]
        assert theirs[2] == ours[2] == 0 and theirs[1] > 5, theirs
        assert all(abs(a - b) <= 1e-5 * max(b, 1) for a, b in zip(ours, theirs)), (ours, theirs)

    def test_gradients(self):
        self.model.zero_grad()
        self.their_loss(0).backward()
        gradients = copy.deepcopy(self.model)
        with self.torch.no_grad():
            for param, original in zip(gradients.parameters(), self.model.parameters(), strict=True):
                param.copy_(original.grad)
        gradients.save_pretrained(os.path.join(self.folder, "gradients"))
        # Heddle's loader converts them to its names and layouts.
        theirs = self.tensors("theirs", "--optimizer.lr=0", model=os.path.join(self.folder, "gradients"))
        ours = self.tensors("ours")
        for name in theirs:
            if name.endswith((".exp_avg", ".exp_avg_sq")):
                continue
            expected = theirs[name]
            apart = (ours[f"{name}.exp_avg"] - expected).abs().max() / expected.abs().max()
            assert apart <= 1e-5, f"{name}: {apart}"

    def test_meshes(self):
        flags = [f"--training.steps={STEPS}", "--training.document_boundaries"]
        whole = self.losses("whole", *flags)
        assert all(loss == loss for loss in whole), whole
        for name, mesh in (("accumulated", ["--training.local_batch_size=1", "--training.global_batch_size=2"]),
                           ("dp2", ["--parallelism.data_parallel_shard_degree=2", "--training.local_batch_size=1"]),
                           ("tp2", ["--parallelism.tensor_parallel_degree=2"]),
                           ("pp3", ["--parallelism.pipeline_parallel_degree=3"])):
            parts = self.losses(name, *flags, *mesh)
            assert all(abs(a - b) <= 2e-6 * max(a, 1) for a, b in zip(whole, parts)), f"{name}: {whole} {parts}"
        saved = f"--checkpoint.folder={os.path.join(self.folder, 'saved')}"
        assert self.losses("first", "--training.steps=1", flags[1], saved) == whole[:1]
        assert self.losses("again", *flags, saved) == whole[1:]

    def test_references(self):
        """Eager training and PyTorch have the same bits, also where positions begin with documents."""
        steps = f"--training.steps={STEPS}"
        dp2 = ["--parallelism.data_parallel_shard_degree=2", "--training.local_batch_size=1"]
        self.run("verify", steps, *dp2)
        self.run("verify", steps, "--against=pytorch", f"--python={sys.executable}", "--training.document_attention", *dp2)


def main():
    try:
        import transformers
    except ImportError:
        print("skipped: transformers is not installed")
        return 77
    import torch
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        test = Test(sys.argv[1], folder)
        for name in ("transformers", "gradients", "meshes", "references"):
            getattr(test, f"test_{name}")()
            print(f"{name}: as expected", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
