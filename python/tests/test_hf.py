"""Capture of Hugging Face architectures: tiny models, with the bits of eager autograd."""

# ruff: noqa: E402

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from heddle import hf
from heddle.capturing import AdamW, Spec, rules_of, trace_step
from heddle.errors import CaptureError
from step_checks import assert_eager_bits, assert_optimizer_bits

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


# `test_hf_fx` compares the others with eager, too, in f64 and without dropout, on Heddle's ranks.
FEW = ["gpt2", "llama", "mixtral", "bert", "t5"]
FULL = "HEDDLE_SOAK" in os.environ or find_spec("heddle._torch") is None


@pytest.mark.parametrize("name", list(MODELS) if FULL else FEW)
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


def test_no_model_is_left_out() -> None:
    assert len(MODELS) == 14


def test_vision_transformer() -> None:
    model = of(
        "ViTConfig",
        "ViTForImageClassification",
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        image_size=16,
        patch_size=4,
        num_labels=5,
    )()
    batch = dict(pixel_values=torch.randn(2, 3, 16, 16), labels=torch.tensor([1, 3]))
    captured = assert_eager_bits(model, batch)
    units = {one.unit for one in captured.parameters}
    assert len([unit for unit in units if unit and unit.endswith((".0", ".1"))]) == 2


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_optimizer_in_the_graph(name: str) -> None:
    model = MODELS[name]().eval()
    options = AdamW(lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1, max_norm=0.5)
    assert_optimizer_bits(model, tokens(), options)


def test_tied_weights_are_one_input() -> None:
    model = of("LlamaConfig", "LlamaForCausalLM", **BASE, tie_word_embeddings=True)()
    captured = assert_eager_bits(model, tokens())
    embedding = captured.inputs[0]
    assert embedding["label"] == "model.embed_tokens.weight"
    assert embedding["tied"] == ["lm_head.weight"]
    assert all(one["label"] != "lm_head.weight" for one in captured.inputs)


def test_scopes_phases_and_units() -> None:
    captured = trace_step(MODELS["llama"](), tokens())
    nodes = [n for n in captured.graph_module.graph.nodes if n.op == "call_function"]
    for phase in ("fwd", "bwd"):
        scopes = {n.meta["heddle_scope"] for n in nodes if n.meta["heddle_phase"] == phase}
        for name in ("mlp.down_proj", "self_attn.q_proj", "input_layernorm"):
            assert {f"model.layers.0.{name}", f"model.layers.1.{name}"} <= scopes
        assert "loss" in scopes and "lm_head" in scopes
    units = {one.name: one.unit for one in captured.parameters}
    assert units["model.layers.1.mlp.up_proj.weight"] == "model.layers.1"
    assert units["model.embed_tokens.weight"] == "model.embed_tokens"
    assert units["model.norm.weight"] == units["lm_head.weight"] == "lm_head"


def test_rules_come_from_the_tables_of_transformers() -> None:
    llama = hf.rules(MODELS["llama"]())
    assert llama.split_dim("model.layers.1.self_attn.q_proj.weight") == 0
    assert llama.split_dim("model.layers.1.self_attn.o_proj.weight") == 1
    assert llama.split_dim("model.layers.1.input_layernorm.weight") is None
    assert llama.split_dim("lm_head.weight") == 0
    mixtral = hf.rules(MODELS["mixtral"]())
    assert mixtral.experts == (
        "model.layers.*.mlp.experts.gate_up_proj",
        "model.layers.*.mlp.experts.down_proj",
    )
    assert mixtral.split_dim("model.layers.0.mlp.experts.down_proj") == 2
    gemma3 = hf.rules(MODELS["gemma3"]())
    assert gemma3.split_dim("model.embed_tokens.weight") == 0
    for name, unit in (("gpt2", "transformer.h.1"), ("t5", "decoder.block.1")):
        model = MODELS[name]()
        assert unit in {rules_of(model).unit(path) for path, _ in model.named_parameters()}


@pytest.mark.parametrize("name", list(MODELS))
def test_every_rule_matches_a_parameter(name: str) -> None:
    model = MODELS[name]()
    found = hf.rules(model)
    names = [n for n, _ in model.named_parameters(remove_duplicate=False)]
    # A model of dense layers alone has the tables of its experts, too.
    assert [glob for glob in found.unmatched(names) if "mlp" not in glob] == []
    assert any(rules_of(model).unit(n) for n in names)


def test_experts_that_look_at_data_are_explained() -> None:
    model = MODELS["mixtral"]()
    model.set_experts_implementation("eager")
    with pytest.raises(CaptureError) as caught:
        trace_step(model, tokens())
    found = caught.value.diagnostics[0]
    assert found.kind == "capture-data"
    assert "model.layers.0.mlp.experts" in found.message and "aten.nonzero" in found.message
    assert found.file is not None and found.file.endswith("modeling_mixtral.py")
    assert "nonzero()" in found.source and found.line > 0
    assert "batched_mm" in found.hint
    assert "modeling_mixtral.py" in str(caught.value)


def test_labels_are_missing() -> None:
    with pytest.raises(CaptureError, match="without a loss") as caught:
        trace_step(MODELS["llama"](), dict(input_ids=tokens()["input_ids"]))
    assert "labels" in caught.value.diagnostics[0].hint


def test_the_model_and_transformers_are_as_before() -> None:
    from transformers import masking_utils

    model = MODELS["llama"]()
    function = masking_utils.find_packed_sequence_indices
    before = {name: dict(m.__dict__) for name, m in model.named_modules()}
    config = model.config.to_dict()
    trace_step(model, tokens())
    model.config.use_cache = True
    with pytest.raises(CaptureError):
        trace_step(model, dict(input_ids=tokens()["input_ids"]))
    assert model.config.to_dict() == config
    assert masking_utils.find_packed_sequence_indices is function
    for name, module in model.named_modules():
        assert module.__dict__.keys() == before[name].keys()
        assert all(module.__dict__[key] is value for key, value in before[name].items())


def test_caches_are_off() -> None:
    model = MODELS["llama"]()
    assert model.config.use_cache
    code = trace_step(model, tokens()).graph_module.code
    model.config.use_cache = False
    assert trace_step(model, tokens()).graph_module.code == code


def test_a_cuda_step_has_flash_attention() -> None:
    with torch.device("meta"):
        model = MODELS["llama"]()
    spec = Spec((2, 64), torch.int64)
    captured = trace_step(
        model, dict(input_ids=spec, labels=spec), param_dtype=torch.bfloat16, target="cuda"
    )
    names = [str(node.target) for node in captured.graph_module.graph.nodes]
    assert names.count("aten._scaled_dot_product_flash_attention.default") == 2
    assert names.count("aten._scaled_dot_product_flash_attention_backward.default") == 2


@pytest.mark.skipif("HEDDLE_SOAK" not in os.environ, reason="slow; set HEDDLE_SOAK=1")
def test_llama_8b_on_meta() -> None:
    config = transformers.LlamaConfig(
        vocab_size=128256,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        max_position_embeddings=8192,
        rope_theta=500000.0,
    )
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config).train()
    spec = Spec((1, 8192), torch.int64)
    captured = trace_step(
        model,
        dict(input_ids=spec, labels=spec),
        param_dtype=torch.bfloat16,
        target="cuda",
        optimizer=AdamW(max_norm=1.0),
    )
    sizes = [torch.Size(one.shape).numel() for one in captured.parameters]
    assert sum(sizes) == 8_030_261_248
    assert sum(one["role"] == "grad" for one in captured.outputs) == 291
