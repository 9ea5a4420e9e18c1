"""Plans Llama 3.1 8B of transformers for 64 GPUs, without weights and without a GPU.

    pip install transformers
    python examples/python/plan_hf.py [LAYERS]

With LAYERS, the model has that number of layers instead of 32.
"""

from __future__ import annotations

import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import heddle


def main(layers: int = 32) -> None:
    # AutoConfig.from_pretrained("meta-llama/Llama-3.1-8B") gives these numbers.
    config = LlamaConfig(
        vocab_size=128256,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=layers,
        num_attention_heads=32,
        num_key_value_heads=8,
        max_position_embeddings=8192,
        rope_theta=500000.0,
    )
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    tokens = heddle.Spec((64, 8192), torch.int64)
    step = heddle.capture(
        model,
        dict(input_ids=tokens, labels=tokens),
        param_dtype=torch.bfloat16,
        target="cuda",
        optimizer=heddle.AdamW(max_norm=1.0),
    )
    print(step)

    # FSDP. Units and tensor parallelism are in transformers' own tables.
    program = step.compile(step.plan("dp=64"), cluster="h100-8x")
    simulation = program.simulate()
    print(f"dp=64: {simulation.step_time * 1e3:.1f} ms, {simulation.exposed * 1e3:.1f} ms exposed")
    print(f"       {simulation.peak_memory / 2**30:.1f} GiB, MFU {simulation.mfu:.2f}")

    auto = step.plan("dp=8,tp=8", auto=True)
    print(auto.explain("model.layers.0.mlp.down_proj.weight"))

    best = heddle.search(step, devices=64, cluster="h100-8x", memory="72GiB")
    print(best)
    print(best.compare(program))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
