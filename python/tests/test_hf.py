"""Capture of Hugging Face architectures: tiny models, with the bits of eager autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from heddle import hf  # noqa: E402
from heddle.capture import AdamW, Spec, trace_step  # noqa: E402
from heddle.errors import CaptureError  # noqa: E402
from step_checks import assert_eager_bits, assert_optimizer_bits, own_loss  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.hf]

VOCABULARY = 128
BASE = dict(
    vocab_size=VOCABULARY,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
)
EXPERTS = dict(num_experts_per_tok=2)
PADS = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)


def of(config: str, model: str, **fields: Any) -> Callable[[], Any]:
    def make() -> Any:
        torch.manual_seed(0)
        made = getattr(transformers, model)(getattr(transformers, config)(**fields))
        return made.train()

    return make


def batched(make: Callable[[], Any]) -> Callable[[], Any]:
    def made() -> Any:
        model = make()
        model.set_experts_implementation("batched_mm")
        return model

    return made


MODELS: dict[str, Callable[[], Any]] = {
    "gpt2": of(
        "GPT2Config",
        "GPT2LMHeadModel",
        vocab_size=VOCABULARY,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=64,
    ),
    "llama": of("LlamaConfig", "LlamaForCausalLM", **BASE),
    "mistral": of("MistralConfig", "MistralForCausalLM", **BASE, sliding_window=8),
    "qwen2": of("Qwen2Config", "Qwen2ForCausalLM", **BASE),
    "qwen3": of("Qwen3Config", "Qwen3ForCausalLM", **BASE, head_dim=8),
    "qwen3_moe": batched(
        of(
            "Qwen3MoeConfig",
            "Qwen3MoeForCausalLM",
            **BASE,
            **EXPERTS,
            head_dim=8,
            moe_intermediate_size=16,
            num_experts=4,
            decoder_sparse_step=1,
        )
    ),
    "gemma2": of("Gemma2Config", "Gemma2ForCausalLM", **BASE, head_dim=8, sliding_window=8),
    "gemma3": of("Gemma3TextConfig", "Gemma3ForCausalLM", **BASE, head_dim=8, sliding_window=8),
    "phi3": of("Phi3Config", "Phi3ForCausalLM", **BASE, **PADS),
    "olmo2": of("Olmo2Config", "Olmo2ForCausalLM", **BASE),
    "mixtral": batched(
        of("MixtralConfig", "MixtralForCausalLM", **BASE, **EXPERTS, num_local_experts=4)
    ),
    "deepseek_v3": batched(
        of(
            "DeepseekV3Config",
            "DeepseekV3ForCausalLM",
            **{**BASE, "num_key_value_heads": 4},
            **EXPERTS,
            moe_intermediate_size=16,
            n_routed_experts=4,
            n_group=2,
            topk_group=1,
            q_lora_rank=16,
            kv_lora_rank=8,
            qk_rope_head_dim=8,
            qk_nope_head_dim=8,
            v_head_dim=8,
            first_k_dense_replace=1,
        )
    ),
    "bert": of(
        "BertConfig",
        "BertForMaskedLM",
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
    ),
    "t5": of(
        "T5Config",
        "T5ForConditionalGeneration",
        vocab_size=VOCABULARY,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
    ),
}


def tokens(rows: int = 2, length: int = 16) -> Any:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(3, VOCABULARY, (rows, length), generator=generator)
    return dict(input_ids=ids, labels=ids.clone())


@pytest.mark.parametrize("name", list(MODELS))
def test_bits_of_eager(name: str) -> None:
    model = MODELS[name]()
    captured = assert_eager_bits(model, tokens())
    namespaces = {
        node.target.namespace
        for node in captured.graph_module.graph.nodes
        if isinstance(node.target, torch._ops.OpOverload)
    }
    assert namespaces <= {"aten", "prims"}
    assert any(one.unit for one in captured.parameters)
