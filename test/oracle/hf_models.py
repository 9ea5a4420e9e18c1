#!/usr/bin/env python3
"""Compares models of transformers with Heddle's: hf_models.py HEDDLE [--all] [--only TEXT]

Tiny random models go both ways. Models that transformers saves and Heddle loads have
transformers' loss and gradients. So have models that Heddle exports and transformers loads, with
equal bits of every tensor. The default is the first model of each class and all that Heddle
exports; --all runs the others, too. Skipped, with a message, without transformers."""
import argparse
import copy
import json
import os
import re
import subprocess
import sys
import tempfile

SEED, STEP, ROWS, LENGTH = 42, 1, 2, 48
TOLERANCE = 1e-5
# Maximum difference of a gradient, as a share of its largest element.
GRADIENT_TOLERANCE = 1e-4
SHARED = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, vocab_size=512,
              max_position_embeddings=256)
MIXTURE = dict(num_experts_per_tok=2, moe_intermediate_size=48)
LATENT = dict(num_key_value_heads=4, n_routed_experts=8, n_shared_experts=2, n_group=4, topk_group=2, first_k_dense_replace=1,
              kv_lora_rank=24, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16, rms_norm_eps=1e-5)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64, beta_fast=32, beta_slow=1)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)

# With a padding token, transformers leaves out its gradient. Its other kernels ignore the softcap.
GEMMA = dict(hidden_size=66, num_attention_heads=3, head_dim=16, pad_token_id=None, attn_implementation="eager")
OSS = dict(hidden_size=48, intermediate_size=40, num_attention_heads=3, head_dim=16, num_local_experts=6, num_experts_per_tok=2,
           attn_implementation="eager")
# Classes whose names do not follow from the model's.
NAMES = {"GPT2": ("GPT2LMHeadModel", "GPT2Config"), "Gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig")}

# Class, its config, and the maximum size of its files.
MODELS = [
    ("Llama", dict(num_key_value_heads=2, rope_theta=500000.0, rope_scaling=LLAMA3, rms_norm_eps=1e-5), "5GB"),
    ("Llama", dict(num_key_value_heads=4, head_dim=8, rope_theta=10000.0, tie_word_embeddings=True), "100KB"),
    ("Mistral", dict(num_key_value_heads=2, head_dim=32, rope_theta=1e6, sliding_window=None), "5GB"),
    ("Mistral", dict(num_key_value_heads=2, rope_theta=1e4), "5GB"),  # A window of 4096.
    ("Mistral", dict(num_key_value_heads=2, rope_theta=1e4, sliding_window=16), "5GB"),
    ("Mixtral", dict(num_key_value_heads=2, num_local_experts=4), "5GB"),
    ("Mixtral", dict(num_key_value_heads=2, num_local_experts=6, num_experts_per_tok=3, rope_theta=1e4,
                     sliding_window=20), "200KB"),
    ("Qwen2", dict(num_key_value_heads=2, rope_theta=1e6, tie_word_embeddings=True), "5GB"),
    ("Qwen2", dict(num_key_value_heads=1, rope_theta=1e6, rope_scaling=YARN), "5GB"),
    ("Qwen3", dict(num_key_value_heads=2, head_dim=32, rope_theta=1e6, tie_word_embeddings=True), "5GB"),
    ("Qwen3", dict(num_key_value_heads=1, head_dim=32, rope_theta=1e6, rope_scaling=YARN), "5GB"),
    ("Qwen3Moe", dict(num_key_value_heads=2, head_dim=16, num_experts=8, norm_topk_prob=True, **MIXTURE), "5GB"),
    ("Qwen3Moe", dict(num_key_value_heads=2, head_dim=16, num_experts=6, norm_topk_prob=False, mlp_only_layers=[0], **MIXTURE),
     "200KB"),
    # With a padding token, transformers leaves out its gradient.
    ("Olmo2", dict(num_key_value_heads=2, pad_token_id=None, rope_theta=5e5), "5GB"),
    ("Olmo2", dict(num_key_value_heads=4, pad_token_id=None, tie_word_embeddings=True, rope_theta=1e4), "100KB"),
    ("Phi3", dict(num_key_value_heads=2, pad_token_id=None, rope_theta=250000.0), "5GB"),
    ("Phi3", dict(num_key_value_heads=4, pad_token_id=None, sliding_window=16), "100KB"),
    ("Gemma2", dict(GEMMA, num_key_value_heads=1, query_pre_attn_scalar=24, sliding_window=16), "5GB"),
    ("Gemma2", dict(GEMMA, num_attention_heads=4, hidden_size=64, num_key_value_heads=2, head_dim=24,
                    attn_logit_softcapping=2.0, final_logit_softcapping=None), "100KB"),  # A window of 4096.
    ("Gemma2", dict(GEMMA, num_key_value_heads=3, attn_logit_softcapping=None, final_logit_softcapping=1.5, sliding_window=20,
                    tie_word_embeddings=False), "5GB"),
    ("Gemma3", dict(GEMMA, num_key_value_heads=1, num_hidden_layers=7, sliding_window=16, query_pre_attn_scalar=24), "5GB"),
    ("Gemma3", dict(GEMMA, num_key_value_heads=3, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                    rope_parameters=dict(full_attention=dict(rope_type="linear", factor=8.0, rope_theta=1e6),
                                         sliding_attention=dict(rope_type="default", rope_theta=2e4))), "100KB"),
    ("GptOss", dict(OSS, num_key_value_heads=1, sliding_window=16, rope_parameters=dict(YARN, truncate=False, rope_theta=1e4)), "5GB"),
    ("GptOss", dict(OSS, num_key_value_heads=3, num_experts_per_tok=3, tie_word_embeddings=True,
                    rope_parameters=dict(rope_type="default", rope_theta=1e4)), "100KB"),  # A window of 128.
    ("GPT2", dict(n_embd=66, n_head=3, n_layer=3, n_positions=48, vocab_size=512), "5GB"),
    ("GPT2", dict(n_embd=64, n_head=4, n_layer=2, n_inner=96, n_positions=80, vocab_size=509, tie_word_embeddings=False), "100KB"),
    ("DeepseekV3", dict(q_lora_rank=40, rope_scaling=dict(YARN, mscale=0.8, mscale_all_dim=0.6), **MIXTURE, **LATENT), "5GB"),
    ("DeepseekV3", dict(q_lora_rank=None, norm_topk_prob=False, **MIXTURE, **LATENT), "200KB"),
]

# Models of Heddle's own, as flags, with the class that they are exported to.
SMALL = ["--model.dim=64", "--model.n_layers=3", "--model.n_heads=4", "--model.ffn_dim=96", "--model.vocab_size=512"]
EXPERTS = ["--model.moe.experts=8", "--model.moe.top_k=2", "--model.moe.ffn_dim=48"]
OWN = [
    ("LlamaForCausalLM", ["--model=llama3", "--flavor=1B", "--model.n_kv_heads=2", "--model.rope_scaling.original_length=64"]),
    ("LlamaForCausalLM", ["--model=llama2", "--flavor=7B", "--model.n_kv_heads=2"]),
    ("MistralForCausalLM", ["--model=mistral", "--flavor=7B-v0.1", "--model.n_kv_heads=2", "--model.head_dim=24",
                            "--model.window=16"]),
    ("MixtralForCausalLM", ["--model=mixtral", "--flavor=8x7B", "--model.n_kv_heads=2", "--model.moe.ffn_dim=96"]),
    ("Qwen2ForCausalLM", ["--model=qwen2", "--flavor=7B", "--model.n_kv_heads=2"]),
    ("Olmo2ForCausalLM", ["--model=olmo2", "--flavor=7B", "--model.n_kv_heads=2"]),
    ("Phi3ForCausalLM", ["--model=phi3", "--flavor=mini", "--model.n_kv_heads=2"]),
    ("Gemma2ForCausalLM", ["--model=gemma2", "--flavor=27B", "--model.n_kv_heads=2", "--model.head_dim=24", "--model.window=16"]),
    ("Gemma3ForCausalLM", ["--model=gemma3", "--flavor=27B", "--model.n_kv_heads=2", "--model.head_dim=24", "--model.window=16",
                           "--model.global_every=2"]),
    ("GptOssForCausalLM", ["--model=gpt_oss", "--flavor=20B", "--model.n_kv_heads=2", "--model.head_dim=24", "--model.window=16",
                           "--model.moe.experts=6", "--model.moe.ffn_dim=96"]),
    ("GPT2LMHeadModel", ["--model=gpt2", "--flavor=124M", "--model.n_kv_heads=4", "--model.max_length=64"]),
    ("Qwen3ForCausalLM", ["--model=qwen3", "--flavor=debugmodel", "--model.n_kv_heads=2", "--model.head_dim=16"]),
    ("Qwen3MoeForCausalLM", ["--model=qwen3", "--flavor=debugmodel_moe", "--model.n_kv_heads=2", "--model.head_dim=16"] + EXPERTS),
    ("DeepseekV3ForCausalLM", ["--model=deepseek_v3", "--flavor=671B", "--model.mla.q_rank=40", "--model.mla.kv_rank=24",
                               "--model.moe.dense_layers=1", "--model.moe.groups=4", "--model.moe.limited_groups=2",
                               "--model.rope_scaling.original_length=64"] + EXPERTS),
]


def splitmix64(x):
    mask = (1 << 64) - 1
    x = (x + 0x9E3779B97F4A7C15) & mask
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    return x ^ (x >> 31)


def tokens_of(torch, vocab):
    token = lambda row, at: splitmix64((SEED << 40) + (STEP << 32) + (row << 16) + at) % vocab
    return torch.tensor([[token(row, at) for at in range(LENGTH + 1)] for row in range(ROWS)])


def loss_there(torch, model):
    tokens = tokens_of(torch, model.config.vocab_size)
    with torch.no_grad():
        logits = model.eval()(tokens[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten()).item()


def load_there(model_class, folder):
    return model_class.from_pretrained(folder, **({"attn_implementation": "eager"} if "Gemma2" in model_class.__name__ else {}))


def loss_here(heddle, folder, flags):
    path = os.path.join(folder, "hashes.jsonl")
    subprocess.check_call([heddle, "verify", "--against=none", "--precision=f32", f"--training.steps={STEP}",
                           f"--training.seq_len={LENGTH}", f"--training.local_batch_size={ROWS}", f"--debug.seed={SEED}",
                           f"--hashes={path}"] + flags, stdout=subprocess.DEVNULL)
    with open(path, encoding="utf-8") as file:
        return next(float.fromhex(line["loss"]) for line in map(json.loads, file) if "loss" in line)


def tensors_here(heddle, folder, flags, kind):
    """Returns tensors of a one-step training run by Heddle's names: `param`, or `exp_avg`, which
    is the gradient with beta1=0."""
    from safetensors.torch import load_file
    saved = tempfile.mkdtemp(dir=folder)
    # A rate of 0 keeps the loaded parameters.
    rate = 0 if kind == "param" else 1e-3
    subprocess.check_call([heddle, "train", "--precision=f32", "--training.dataset=synthetic", f"--training.steps={STEP}",
                           f"--training.seq_len={LENGTH}", f"--training.local_batch_size={ROWS}", f"--debug.seed={SEED}",
                           f"--checkpoint.folder={saved}", "--training.max_norm=0", "--optimizer.beta1=0", f"--optimizer.lr={rate}"]
                          + flags, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    tensors = load_file(os.path.join(saved, f"step-{STEP:08d}", "rank-00000.safetensors"))
    gradients = {name.removesuffix(".exp_avg"): tensor for name, tensor in tensors.items() if name.endswith(".exp_avg")}
    return gradients if kind == "exp_avg" else {name: tensors[name] for name in gradients}


def wrong_gradients(torch, heddle, folder, model, flags):
    """Compares gradients of a model of transformers with those of the same model in Heddle.

    The gradients of transformers are saved as if they were weights, so that Heddle's loader
    converts them to Heddle's names and layouts."""
    tokens = tokens_of(torch, model.config.vocab_size)
    model.zero_grad()
    logits = model.eval()(tokens[:, :-1]).logits
    torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten()).backward()
    gradients = copy.deepcopy(model)
    with torch.no_grad():
        for param, original in zip(gradients.parameters(), model.parameters(), strict=True):
            param.copy_(torch.zeros_like(param) if original.grad is None else original.grad)
    place = os.path.join(folder, "gradients")
    gradients.save_pretrained(place)
    theirs = tensors_here(heddle, folder, ["--model=hf", f"--checkpoint.initial_load_path={place}"], "param")
    ours = tensors_here(heddle, folder, flags, "exp_avg")
    if not ours or ours.keys() != theirs.keys():
        return [f"gradients of other parameters: {sorted(ours.keys() ^ theirs.keys())[:3]}"]
    wrong, most = [], max(expected.abs().max().item() for expected in theirs.values())
    for name, expected in theirs.items():
        apart, largest = (ours[name] - expected).abs().max().item(), expected.abs().max().item()
        # Biases of keys have no effect without rotations. Their gradients are rounding errors.
        if not apart <= GRADIENT_TOLERANCE * max(largest, 1e-3 * most):
            wrong.append(f"gradient of {name} is off by {apart:.2e}, its largest element is {largest:.2e}")
    return wrong[:3]


def near(name, ours, theirs):
    if abs(ours - theirs) <= TOLERANCE:
        return []
    return [f"{name}: loss {ours} here and {theirs} there"]


def same_tensors(torch, one, other):
    one, other = one.state_dict(), other.state_dict()
    if one.keys() != other.keys():
        return [f"other tensors: {sorted(one.keys() ^ other.keys())[:3]}"]
    return [f"{name} has other bits" for name in one if not torch.equal(one[name], other[name])][:3]


def check_theirs(torch, transformers, heddle, kind, config, largest):
    """Checks a model that transformers saves and Heddle loads, and its export that transformers
    loads."""
    class_name, config_name = NAMES.get(kind, (kind + "ForCausalLM", kind + "Config"))
    model_class = getattr(transformers, class_name)
    model = model_class(getattr(transformers, config_name)(**{**({} if kind == "GPT2" else SHARED), **config}))
    for name, buffer in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            buffer.copy_(torch.randn(buffer.shape) * 0.05)
    theirs = loss_there(torch, model)
    with tempfile.TemporaryDirectory() as folder:
        saved, exported = os.path.join(folder, "saved"), os.path.join(folder, "exported")
        model.save_pretrained(saved, max_shard_size=largest)
        flags = ["--model=hf", f"--checkpoint.initial_load_path={saved}"]
        wrong = near("loaded here", loss_here(heddle, folder, flags), theirs)
        subprocess.check_call([heddle, "export", f"--hf={exported}", "--shard-size=1"] + flags, stdout=subprocess.DEVNULL)
        wrong += wrong_gradients(torch, heddle, folder, model, flags)
        back = load_there(model_class, exported)
        wrong += near("exported", theirs, loss_there(torch, back)) + same_tensors(torch, model, back)
    return wrong


def random_weights(torch, heddle, flags):
    """Returns random weights with the names and shapes of the captured step."""
    text = subprocess.check_output([heddle, "capture", "--precision=f32", f"--training.seq_len={LENGTH}"] + flags, text=True)
    found = re.findall(r'f32\[([0-9,]+)\] param \d+ "([^"]+)"', text)
    weights = {}
    for shape, name in found:
        sizes = [int(size) for size in shape.split(",")]
        weights[name] = torch.ones(sizes) + torch.randn(sizes) * 0.1 if "norm" in name else torch.randn(sizes) * 0.05
    return weights


def check_own(torch, transformers, heddle, class_name, flags):
    """Checks a file of Heddle's that Heddle exports and transformers loads."""
    from safetensors.torch import save_file
    flags = SMALL + flags
    with tempfile.TemporaryDirectory() as folder:
        file, exported = os.path.join(folder, "own.safetensors"), os.path.join(folder, "exported")
        save_file(random_weights(torch, heddle, flags), file)
        flags = flags + [f"--checkpoint.initial_load_path={file}"]
        ours = loss_here(heddle, folder, flags)
        subprocess.check_call([heddle, "export", f"--hf={exported}"] + flags, stdout=subprocess.DEVNULL)
        model = load_there(getattr(transformers, class_name), exported)
        return (near("exported", ours, loss_there(torch, model))
                + wrong_gradients(torch, heddle, folder, model, flags))


def check_balance(torch, transformers, heddle):
    """Compares the auxiliary loss with transformers' loss of each sequence and layer, which
    counts a token once for each chosen expert."""
    from transformers.models.qwen3_moe.modeling_qwen3_moe import load_balancing_loss_func
    weight = 0.5
    config = transformers.Qwen3MoeConfig(**SHARED, num_key_value_heads=2, head_dim=16, num_experts=8, **MIXTURE)
    model = transformers.Qwen3MoeForCausalLM(config).eval()
    tokens = tokens_of(torch, config.vocab_size)
    with torch.no_grad():
        scores = model(tokens[:, :-1], output_router_logits=True).router_logits
        balance = sum(load_balancing_loss_func((layer.view(ROWS, LENGTH, -1)[row],), 8, 2) / 2 / ROWS
                      for layer in scores for row in range(ROWS))
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        ours = loss_here(heddle, folder, ["--model=hf", f"--checkpoint.initial_load_path={folder}", f"--training.aux_loss={weight}"])
    return near("with auxiliary loss", ours, loss_there(torch, model) + weight * balance.item())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("heddle")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--only", default="", help="models whose names have this")
    options = parser.parse_args()
    try:
        import transformers
    except ImportError:
        print("skipped: transformers is not installed")
        return 77
    import torch
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    heddle, failed = options.heddle, 0
    jobs = [(f"{kind} {config}", lambda a=(kind, config, largest): check_theirs(torch, transformers, heddle, *a))
            for i, (kind, config, largest) in enumerate(MODELS)
            if options.all or options.only or kind not in [model[0] for model in MODELS[:i]]]
    jobs += [(f"{name} of Heddle's", lambda a=(name, flags): check_own(torch, transformers, heddle, *a)) for name, flags in OWN]
    jobs.append(("auxiliary loss of Qwen3Moe", lambda: check_balance(torch, transformers, heddle)))
    jobs = [(name, job) for name, job in jobs if options.only in name]
    for name, job in jobs:
        wrong = job()
        failed += bool(wrong)
        print(f"{name}: {'; '.join(wrong) or 'same'}", flush=True)
    print(f"transformers {transformers.__version__}: {len(jobs) - failed} passed, {failed} failed")
    return 1 if failed or not jobs else 0


if __name__ == "__main__":
    sys.exit(main())
