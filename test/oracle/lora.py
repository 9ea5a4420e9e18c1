#!/usr/bin/env python3
"""Trains adapters of a Hugging Face folder: lora.py HEDDLE

Compares loss and gradients with a Llama of transformers whose linear layers add alpha / rank * B A x,
written by hand. Compares meshes with eager training, and exports with the checkpoint. Skipped without
transformers."""
import json
import os
import subprocess
import sys
import tempfile

from hf_models import SHARED, splitmix64

ROWS, LENGTH, SEED, RANK, ALPHA = 2, 24, 42, 4, 12.0
SCALE = ALPHA / RANK
NAMES = {"attention.wq": "self_attn.q_proj", "attention.wk": "self_attn.k_proj", "attention.wv": "self_attn.v_proj",
         "attention.wo": "self_attn.o_proj", "feed_forward.w1": "mlp.gate_proj", "feed_forward.w2": "mlp.down_proj",
         "feed_forward.w3": "mlp.up_proj"}
LORA = [f"--lora.rank={RANK}", f"--lora.alpha={ALPHA}"]


class Test:
    def __init__(self, heddle, folder):
        import torch
        import transformers
        self.torch, self.transformers, self.heddle, self.folder = torch, transformers, heddle, folder
        self.base, self.saved = os.path.join(folder, "base"), os.path.join(folder, "saved")
        self.config = transformers.LlamaConfig(**SHARED, num_key_value_heads=2, rope_theta=1e4)
        transformers.LlamaForCausalLM(self.config).save_pretrained(self.base)

    def run(self, *args, code=0):
        done = subprocess.run([self.heddle, *args], capture_output=True, text=True, check=False)
        assert done.returncode == code, f"{args}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout if code == 0 else done.stderr

    def job(self, *flags):
        flags = ["--model=hf", f"--checkpoint.initial_load_path={self.base}", "--precision=f32", f"--training.seq_len={LENGTH}",
                 f"--debug.seed={SEED}", "--training.dataset=synthetic", *LORA, *flags]
        # The last value of a flag counts.
        return list({flag.split("=")[0]: flag for flag in flags}.values())

    def train(self, steps, *flags, folder=None, name="metrics"):
        """Trains up to a step without clipping, and returns its tensors and the losses."""
        from safetensors.torch import load_file
        folder, path = folder or self.saved, os.path.join(self.folder, f"{name}.jsonl")
        self.run("train", *self.job(f"--training.local_batch_size={ROWS}", f"--training.steps={steps}", "--training.max_norm=0",
                                    "--optimizer.beta1=0", "--optimizer.lr=1e-2", f"--checkpoint.folder={folder}",
                                    f"--metrics.jsonl={path}", *flags))
        with open(path, encoding="utf-8") as file:
            losses = [json.loads(line)["loss"] for line in file]
        return load_file(os.path.join(folder, f"step-{steps:08d}", "rank-00000.safetensors")), losses

    def reordered(self, name, rows):
        """Rows of queries and keys as transformers has them: halves of heads instead of pairs."""
        heads = {"wq": 4, "wk": 2}.get(name.rsplit(".", 1)[1])
        if heads is None:
            return rows
        half = rows.shape[0] // heads // 2
        return rows.view(heads, half, 2, -1).transpose(1, 2).reshape(rows.shape)

    def with_adapters(self, tensors):
        """The base model with adapters added by hand, and their A and B by Heddle's names."""
        model = self.transformers.LlamaForCausalLM.from_pretrained(self.base).eval()
        adapters = {}
        for layer in range(self.config.num_hidden_layers):
            for ours, theirs in NAMES.items():
                name = f"layers.{layer}.{ours}"
                a = tensors[f"{name}.lora_a"].clone().requires_grad_()
                b = self.reordered(name, tensors[f"{name}.lora_b"]).clone().requires_grad_()
                adapters[name] = a, b
                hook = lambda module, inputs, out, a=a, b=b: out + SCALE * (inputs[0] @ a.T @ b.T)
                model.get_submodule(f"model.layers.{layer}.{theirs}").register_forward_hook(hook)
        return model, adapters

    def tokens(self, step):
        return self.torch.tensor([[splitmix64((SEED << 40) + (step << 32) + (row << 16) + at) % self.config.vocab_size
                                   for at in range(LENGTH + 1)] for row in range(ROWS)])

    def test_transformers(self):
        """The gradients of step 2 are those at the adapters of step 1."""
        before, _ = self.train(1)
        after, losses = self.train(2)
        model, adapters = self.with_adapters(before)
        tokens = self.tokens(2)
        logits = model(tokens[:, :-1]).logits
        loss = self.torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        assert abs(loss.item() - losses[-1]) <= 1e-5 * loss.item(), (loss.item(), losses)
        for name, (a, b) in adapters.items():
            theirs = {"lora_a": a.grad, "lora_b": b.grad}
            ours = {"lora_a": after[f"{name}.lora_a.exp_avg"],
                    "lora_b": self.reordered(name, after[f"{name}.lora_b.exp_avg"])}
            for part, expected in theirs.items():
                apart = (ours[part] - expected).abs().max() / expected.abs().max()
                assert expected.abs().max() > 0 and apart <= 1e-5, f"{name}.{part}: {apart}"
        frozen = [name for name in before if not name.endswith(("exp_avg", "exp_avg_sq", "lora_a", "lora_b"))]
        assert len(frozen) == 3 + 9 * self.config.num_hidden_layers
        assert all(self.torch.equal(before[name], after[name]) for name in frozen)
        assert not any(f"{name}.exp_avg" in after for name in frozen), "only adapters have moments"

    def test_first_adapters(self):
        first, _ = self.train(1, "--optimizer.lr=0", folder=os.path.join(self.folder, "first"))
        for name, tensor in first.items():
            if name.endswith("lora_b"):
                assert not tensor.any(), name
            if name.endswith("lora_a"):
                bound = tensor.shape[1] ** -0.5
                assert 0.9 * bound < tensor.abs().max() <= bound and abs(tensor.mean()) < 0.2 * bound, name

    def test_resume(self):
        whole, losses = self.train(4, folder=os.path.join(self.folder, "whole"), name="whole")
        parts = os.path.join(self.folder, "parts")
        self.train(2, folder=parts, name="parts")
        again, rest = self.train(4, "--parallelism.data_parallel_shard_degree=2", "--training.local_batch_size=1",
                                 "--training.global_batch_size=2", folder=parts, name="again")
        del again, whole
        assert all(abs(a - b) < 1e-4 for a, b in zip(losses[2:], rest[-2:])), (losses, rest)
        error = self.run("train", *self.job("--lora.targets=wq", f"--training.local_batch_size={ROWS}", "--training.steps=5",
                                            f"--checkpoint.folder={parts}"), code=1)
        assert "--lora.targets=wq,wk,wv,wo,w1,w2,w3, this job has wq" in error, error

    def test_meshes(self):
        dp2, tp2 = "--parallelism.data_parallel_shard_degree=2", "--parallelism.tensor_parallel_degree=2"
        pp3 = "--parallelism.pipeline_parallel_degree=3"
        two = ["--training.local_batch_size=1", "--training.global_batch_size=4"]
        for flags in ([dp2], [dp2, tp2], [tp2, "--parallelism.disable_loss_parallel"],
                      [tp2, "--parallelism.enable_sequence_parallel=false"], [dp2, *two], [pp3, "--training.local_batch_size=3"],
                      [dp2, "--activation_checkpoint.mode=full"], [dp2, "--lora.targets=q_proj,v_proj"],
                      [dp2, "--optimizer.implementation=for-loop"]):
            self.run("verify", *self.job("--training.steps=2", *flags))

    def test_exports(self):
        from safetensors.torch import load_file
        tensors, _ = self.train(2)
        merged, peft_folder = os.path.join(self.folder, "merged"), os.path.join(self.folder, "peft")
        self.run("export", f"--checkpoint={self.saved}", f"--hf={merged}")
        self.run("export", f"--checkpoint={self.saved}", f"--hf={peft_folder}", "--lora.merge=false")
        model, _ = self.with_adapters(tensors)
        alone = self.transformers.LlamaForCausalLM.from_pretrained(merged).eval()
        tokens = self.tokens(9)
        with self.torch.no_grad():
            apart = (model(tokens).logits - alone(tokens).logits).abs().max()
        assert apart < 1e-4, apart
        with open(os.path.join(peft_folder, "adapter_config.json"), encoding="utf-8") as file:
            config = json.load(file)
        assert config["r"] == RANK and config["lora_alpha"] == ALPHA and config["peft_type"] == "LORA", config
        assert sorted(config["target_modules"]) == sorted(name.split(".")[1] for name in NAMES.values())
        adapters = load_file(os.path.join(peft_folder, "adapter_model.safetensors"))
        base = self.transformers.LlamaForCausalLM.from_pretrained(self.base).state_dict()
        weights = alone.state_dict()
        for name in [name for name in adapters if name.endswith(".lora_A.weight")]:
            weight = name.removeprefix("base_model.model.").replace(".lora_A", "")
            product = SCALE * adapters[name.replace("lora_A", "lora_B")] @ adapters[name]
            assert self.torch.allclose(base.pop(weight) + product, weights[weight], atol=1e-6), name
        assert all(self.torch.equal(base[name], weights[name]) for name in base)
        self.run("export", f"--checkpoint.initial_load_path={self.base}", "--model=hf", f"--hf={peft_folder}", "--lora.merge=false", code=1)
        prompt = self.tokens(5)[:1, :6]
        found = json.loads(self.run("generate", f"--checkpoint={self.saved}", "--tokens=8", "--temperature=0", "--json",
                                    f"--prompt={','.join(map(str, prompt[0].tolist()))}"))
        theirs = alone.generate(prompt, max_new_tokens=8, do_sample=False, eos_token_id=None)[0].tolist()
        assert found["tokens"] == theirs[6:], (found, theirs)
        try:
            import peft
        except ImportError:
            print("skipped: a folder for PEFT: the package is not installed")
            return
        with self.torch.no_grad():
            loaded = peft.PeftModel.from_pretrained(self.transformers.LlamaForCausalLM.from_pretrained(self.base), peft_folder).eval()
            apart = (model(tokens).logits - loaded(tokens).logits).abs().max()
        assert apart < 1e-5, apart

    def test_refusals(self):
        for family, flavor in (("deepseek_v3", "debugmodel"), ("gpt2", "124M"), ("gemma2", "2B")):
            error = self.run("capture", f"--model={family}", f"--flavor={flavor}", "--lora.rank=4", code=1)
            assert f"{family} does not support adapters; llama3" in error, error
        error = self.run("capture", "--model=qwen3", "--flavor=debugmodel_moe", "--lora.rank=4", code=1)
        assert "experts, which do not support adapters" in error, error
        error = self.run("capture", "--lora.alpha=4", code=1)
        assert "--lora.alpha has no effect without --lora.rank" in error, error
        error = self.run("capture", "--lora.rank=4", "--lora.targets=wq,q_prj", code=1)
        assert "lora.targets has `q_prj`; nearest is `q_proj`" in error, error
        error = self.run("capture", "--lora.rank=400000", code=1)
        assert "lora.rank is 400000, expected at most" in error, error


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
    names = sys.argv[2:] or ["transformers", "first_adapters", "resume", "meshes", "exports", "refusals"]
    with tempfile.TemporaryDirectory() as folder:
        test = Test(sys.argv[1], folder)
        for name in names:
            getattr(test, f"test_{name}")()
            print(f"{name}: as expected", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
