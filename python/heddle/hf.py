"""What capture knows of Hugging Face transformers. No other file of the package does."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from ._torch_names import annotate
from .rules import Rules, matches

__all__ = ["is_transformers", "rules"]


def is_transformers(model: nn.Module) -> bool:
    """Whether a model, or a part of it, is one of transformers.

    >>> import torch
    >>> from heddle.hf import is_transformers
    >>> is_transformers(torch.nn.Linear(2, 2))
    False
    """
    return _pretrained(model) is not None


def _pretrained(model: nn.Module) -> tuple[str, Any] | None:
    """Path and module of the outermost `PreTrainedModel`, without importing transformers."""
    modeling = sys.modules.get("transformers.modeling_utils")
    if modeling is None:
        return None
    for name, module in model.named_modules():
        if isinstance(module, modeling.PreTrainedModel):
            return name, module
    return None


def _globs_of_classes(model: nn.Module, classes: set[str]) -> list[str]:
    """Paths of the modules of some classes, with `*` for numbers."""
    found = [n for n, m in model.named_modules() if n and type(m).__name__ in classes]
    return list(dict.fromkeys(re.sub(r"(?<=\.)\d+(?=\.|$)", "*", name) for name in found))


def _units(model: nn.Module, root: str, pretrained: Any) -> list[str]:
    """The layers each, the embedding, and in one unit what stays gathered: final norm and head."""
    modules = [name for name, _ in model.named_modules()]
    plan: Mapping[str, str] = getattr(pretrained, "_fsdp_plan", None) or {}
    stated = {
        root + glob: kind
        for glob, kind in plan.items()
        if any(matches(root + glob, name) for name in modules)
    }
    freed = [glob for glob, kind in stated.items() if kind == "free_full_weight"]
    # Tables of several architectures name layers that the model has not.
    if not any("*" in glob for glob in freed):
        freed += _globs_of_classes(model, set(pretrained._no_split_modules or ()))
    kept = [glob for glob, kind in stated.items() if kind == "keep_full_weight"]
    kept.sort(key=lambda glob: glob.endswith("lm_head"))
    return freed + (["|".join(kept)] if kept else [])


def rules(model: nn.Module) -> Rules:
    """The rules that transformers' own tables state: tensor parallelism, experts, units of FSDP.

    Weights that pack two matrices (`packed_colwise`) stay whole: half of each is on another rank.

    >>> import torch
    >>> from heddle.hf import rules
    >>> rules(torch.nn.Linear(2, 2))
    Rules()
    """
    found = _pretrained(model)
    if found is None:
        return Rules()
    name, pretrained = found
    root = f"{name}." if name else ""
    parameters = {n: p.dim() for n, p in model.named_parameters()}
    columns: list[str] = []
    rows: list[str] = []
    weights: dict[str, int] = {}
    for glob, kind in (getattr(pretrained, "_tp_plan", None) or {}).items():
        glob = root + glob
        direct = [dim for path, dim in parameters.items() if matches(glob, path)]
        if kind in ("colwise", "colwise_gather_output", "colwise_rep"):
            if direct:
                weights[glob] = direct[0] - 2
            else:
                columns.append(glob)
        elif kind == "rowwise":
            if direct:
                weights[glob] = direct[0] - 1
            else:
                rows.append(glob)
        elif kind == "embedding_rowwise":
            weights[f"{glob}.weight"] = 0
    experts = [
        root + glob
        for glob, kind in (getattr(pretrained, "_ep_plan", None) or {}).items()
        if kind == "grouped_gemm" and any(matches(root + glob, path) for path in parameters)
    ]
    return Rules(
        columns,
        rows,
        weights,
        experts,
        _units(model, root, pretrained),
        local=_routing(model, experts),
    )


def _routing(model: nn.Module, experts: list[str]) -> list[str]:
    """The modules of experts that sort tokens: those with grouped products."""
    globs = dict.fromkeys(glob.rpartition(".")[0] for glob in experts)
    return [
        glob
        for glob in globs
        if any(
            matches(glob, name)
            and getattr(getattr(module, "config", None), "_experts_implementation", None)
            == "grouped_mm"
            for name, module in model.named_modules()
        )
    ]


@contextlib.contextmanager
def _set(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _loss_scope(function: Callable[..., Any]) -> Callable[..., Any]:
    def loss(*args: Any, **kwargs: Any) -> Any:
        with annotate({"heddle_scope": "loss"}):
            return function(*args, **kwargs)

    return loss


@contextlib.contextmanager
def tracing(model: nn.Module) -> Iterator[None]:
    """Caches and packed sequences off, and the loss in the scope `loss`, while a model is traced.

    Packed sequences are found by looking at data. For fake tensors transformers assumes them, and
    then builds masks that eager does not.
    """
    found = _pretrained(model)
    if found is None:
        yield
        return
    with contextlib.ExitStack() as stack:
        masking = sys.modules.get("transformers.masking_utils")
        if masking is not None and hasattr(masking, "find_packed_sequence_indices"):
            stack.enter_context(_set(masking, "find_packed_sequence_indices", lambda *_: None))
        seen: set[int] = set()
        for module in model.modules():
            config = getattr(module, "config", None)
            if id(config) not in seen and getattr(config, "use_cache", False) is True:
                seen.add(id(config))
                stack.enter_context(_set(config, "use_cache", False))
        pretrained = found[1]
        with contextlib.suppress(AttributeError, ValueError):
            # Undone with the other attributes of the model's modules.
            function = pretrained.loss_function
            if function is not None:
                stack.enter_context(_attribute(pretrained, "_loss_function", _loss_scope(function)))
        yield


@contextlib.contextmanager
def _attribute(module: nn.Module, name: str, value: Any) -> Iterator[None]:
    missing = object()
    before = module.__dict__.get(name, missing)
    module.__dict__[name] = value
    try:
        yield
    finally:
        if before is missing:
            module.__dict__.pop(name, None)
        else:
            module.__dict__[name] = before


def hint(model: nn.Module, module: str | None, message: str) -> str:
    """What to change in a transformers model that cannot be traced, or an empty text."""
    found = _pretrained(model)
    if found is None:
        return ""
    path = module or ""
    if "expert" in path or "mlp" in path or "moe" in path or "grouped_mm" in message:
        of_experts = any("expert" in name for name, _ in model.named_modules())
        if of_experts:
            return (
                "sizes that depend on data have no plan; for transformers: "
                'model.set_experts_implementation("batched_mm")'
            )
    if "flex_attention" in message:
        return 'for transformers: model.set_attn_implementation("sdpa")'
    return ""


def output_hint(output: Any) -> str:
    """Why a model of transformers gave no loss, or an empty text."""
    if type(output).__module__.startswith("transformers.") and hasattr(output, "keys"):
        keys = ", ".join(map(str, output.keys()))
        return f"the output has {keys}; transformers compute the loss if the batch has `labels`"
    return ""


def plain_batch(batch: Any) -> Any:
    """A tokenizer's `BatchEncoding` as a dictionary."""
    if isinstance(batch, Mapping) and not isinstance(batch, dict):
        return dict(batch)
    if (
        hasattr(batch, "data")
        and isinstance(batch.data, dict)
        and not isinstance(batch, (dict, torch.Tensor))
    ):
        return dict(batch.data)
    return batch
