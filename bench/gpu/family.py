"""family.py SHAPE ATTENTION MODE...: ms of a training step in PyTorch, for shapes of SHAPES.

Measures the models of `heddle verify --against=pytorch` on one GPU. MODE: eager, or a mode of
torch.compile. f32 masters, bf16 compute, f32 gradients, clip 1.0, fused AdamW."""
import gc
import os
import statistics
import sys
import time

import torch
import torch.nn.functional as F

from nvk import main, res

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "heddle", "run", "verify", "pytorch"))
import models  # noqa: E402
from layers import Context  # noqa: E402

PLAIN = {"rope_theta": 1e4, "rope_scaling.kind": "none", "rope_scaling.attention_factor": 1.0, "tied": "false"}
MLA = {"mla.q_rank": 0, "mla.kv_rank": 512, "mla.nope_dim": 128, "mla.rope_dim": 64, "mla.v_dim": 128, "mla.mscale": 0.707,
       "mla.norm_eps": 1e-6}
MOE = {"moe.experts": 64, "moe.top_k": 6, "moe.ffn_dim": 1408, "moe.shared_experts": 2, "moe.dense_layers": 1, "moe.bias": "false",
       "moe.score": "softmax", "moe.normalize": "false", "moe.route_scale": 1.0, "moe.groups": 0, "moe.limited_groups": 0,
       "moe.group_score": "max", "moe.bias_rate": 0}
# Model, sequences, tokens of a sequence.
SHAPES = {
    "deepseek": ({**PLAIN, **MLA, **MOE, "family": "deepseek_v3", "dim": 2048, "n_layers": 4, "n_heads": 16, "n_kv_heads": 16,
                  "head_dim": 0, "ffn_dim": 10944, "vocab_size": 102400, "norm_eps": 1e-6}, 4, 4096),
    "tiny": ({**PLAIN, **MLA, **MOE, "family": "deepseek_v3", "dim": 64, "n_layers": 2, "n_heads": 2, "n_kv_heads": 2, "head_dim": 0,
              "ffn_dim": 96, "vocab_size": 256, "norm_eps": 1e-6, "moe.experts": 4, "moe.top_k": 2, "moe.ffn_dim": 32}, 2, 64),
}
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def measure(name, attention, mode):
    config, batch, length = SHAPES[name]
    torch.manual_seed(0)
    torch._dynamo.reset()
    gc.collect()
    context = Context({"attention": attention, "aux_loss": 0, "expert": 1})
    with torch.device(DEVICE):
        model = models.Decoder(config, length, context)
    model.to_device(DEVICE)
    for parameter_name, parameter in model.named_parameters():
        deviation = models.initial_deviation(config, parameter_name)
        torch.nn.init.ones_(parameter) if deviation is None else torch.nn.init.normal_(parameter, std=deviation)
    parameters = dict(model.named_parameters())
    optimizer = torch.optim.AdamW(parameters.values(), lr=1e-4, weight_decay=0.1, fused=True)
    batches = [[torch.randint(config["vocab_size"], (batch, length), device=DEVICE) for _ in range(2)] for _ in range(4)]

    def loss_of(tokens, labels):
        # FSDP2 casts parameters to bf16 for compute; their gradients are cast back.
        half = {key: value.to(torch.bfloat16) for key, value in parameters.items()}
        logits = torch.func.functional_call(model, half, (tokens,))
        return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())

    forward = loss_of if mode == "eager" else torch.compile(loss_of, mode=None if mode == "default" else mode)

    def step(i):
        loss = forward(*batches[i % 4])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters.values(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    sync = torch.cuda.synchronize if DEVICE == "cuda" else (lambda: None)
    for i in range(8):
        step(i)
    sync()
    blocks = []
    for _ in range(3):
        begin = time.perf_counter()
        for i in range(8):
            loss = step(i)
        sync()
        blocks.append((time.perf_counter() - begin) / 8 * 1e3)
    peak = torch.cuda.max_memory_allocated() / 2**30 if DEVICE == "cuda" else 0
    count = sum(p.numel() for p in parameters.values())
    res(f"family {name} {attention} {mode}: wall ms {min(blocks):.2f} (blocks {' '.join(f'{b:.2f}' for b in blocks)}, median "
        f"{statistics.median(blocks):.2f}), peak {peak:.1f} GiB, {count:,} parameters, loss {loss.item():.4f}")


def run():
    name, attention, *modes = sys.argv[1:]
    for mode in modes:
        try:
            measure(name, attention, mode)
        except Exception as error:
            res(f"family {name} {attention} {mode}: FAILED {type(error).__name__} {str(error)[:300]}".replace("\n", " "))


main(run)
