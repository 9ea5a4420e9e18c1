"""Which weights tensor parallelism splits, and which modules are units of FSDP."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

__all__ = ["Layer", "Rules", "matches"]


@functools.lru_cache(maxsize=1024)
def _pattern(glob: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*\.|\*\*|\*)", glob)
    known = {"**.": r"(?:.*\.)?", "**": r".*", "*": r"[^.]*"}
    return re.compile("".join(known.get(part, re.escape(part)) for part in parts))


def matches(glob: str, path: str) -> bool:
    """Whether a path has the form of a glob. `*` is one name, `**` any number of names.

    >>> from heddle.rules import matches
    >>> matches("layers.*.mlp", "layers.3.mlp"), matches("**.up", "blocks.0.mlp.up")
    (True, True)
    >>> matches("layers.*", "layers.3.mlp")
    False
    """
    return _pattern(glob).fullmatch(path) is not None


@dataclass(frozen=True)
class Layer:
    """The activations that modules take and give, for sequence parallelism.

    `inputs` and `outputs` are `"residual"` (the residual stream, split by position), `"whole"` or
    `"logits"` (split by vocabulary).

    >>> from heddle.rules import Layer
    >>> Layer("layers.*.mlp", inputs="whole", outputs="residual").pattern
    'layers.*.mlp'
    """

    pattern: str
    inputs: str | None = None
    outputs: str | None = None

    def __post_init__(self) -> None:
        for flow in (self.inputs, self.outputs):
            if flow not in (None, "residual", "whole", "logits"):
                raise ValueError(
                    f"{flow!r} is not a flow of activations; use 'residual', 'whole' or 'logits'"
                )


@dataclass(frozen=True)
class Rules:
    """How a plan may split a model. Globs are paths of modules: `*` is one name, `**` any number.

    - `columns`: linear layers whose output features a `tp` axis splits.
    - `rows`: linear layers whose input features it splits.
    - `weights`: other parameters, by their own path, and the dimension that it splits.
    - `experts`: parameters that stack experts; an `ep` axis splits their first dimension.
    - `local`: modules that sort tokens by expert and restore their order, so each rank can route
      its own tokens. An `ep` axis sends rows to the ranks of their experts there.
    - `units`: modules whose parameters FSDP gathers in one step; `"norm|head"` is one unit of two
      modules, called `head`. Without them, the items of each outermost `ModuleList`.
    - `layers`: activations between modules, for sequence parallelism. Without them, activations are
      whole around modules whose linear layers split columns first, and then rows.

    >>> from heddle.rules import Rules
    >>> rules = Rules(columns=["**.up"], rows=["**.down"], units=["blocks.*"])
    >>> rules.unit("blocks.0.mlp.up.weight")
    'blocks.0'
    >>> rules.split_dim("blocks.0.mlp.up.weight"), rules.split_dim("blocks.0.mlp.down.weight")
    (0, 1)
    >>> rules.split_dim("blocks.0.mlp.down.bias") is None
    True
    """

    columns: Sequence[str] = ()
    rows: Sequence[str] = ()
    weights: Mapping[str, int] = field(default_factory=dict)
    experts: Sequence[str] = ()
    units: Sequence[str] = ()
    layers: Sequence[Layer] = ()
    local: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in ("columns", "rows", "experts", "units", "local"):
            globs = getattr(self, name)
            if isinstance(globs, str) or not all(isinstance(glob, str) for glob in globs):
                raise TypeError(f"Rules.{name} is {globs!r}; expected a list of globs")
            object.__setattr__(self, name, tuple(globs))
        object.__setattr__(self, "layers", tuple(self.layers))
        object.__setattr__(self, "weights", dict(self.weights))

    def unit(self, parameter: str) -> str | None:
        """The unit of FSDP that a parameter belongs to: its longest prefix that `units` name.

        >>> from heddle.rules import Rules
        >>> Rules(units=["encoder.*", "encoder.*.mlp"]).unit("encoder.0.mlp.up.weight")
        'encoder.0.mlp'
        """
        end = len(parameter)
        while (end := parameter.rfind(".", 0, end)) > 0:
            path = parameter[:end]
            for glob in self.units:
                *others, last = glob.split("|")
                if matches(last, path):
                    return path
                if any(matches(other, path) for other in others):
                    return last
        return None

    def split_dim(self, parameter: str) -> int | None:
        """The dimension of a parameter that a `tp` axis splits; None for a replicated one.

        >>> from heddle.rules import Rules
        >>> Rules(weights={"embed.weight": 0}).split_dim("embed.weight")
        0
        """
        for glob, dim in self.weight_rules():
            if matches(glob, parameter):
                return dim
        return None

    def weight_rules(self) -> list[tuple[str, int]]:
        """Globs of parameters with the dimension that a `tp` axis splits; the first match counts.

        >>> from heddle.rules import Rules
        >>> Rules(columns=["**.up"], rows=["**.down"]).weight_rules()
        [('**.up.weight', 0), ('**.up.bias', 0), ('**.down.weight', 1)]
        """
        found = list(self.weights.items())
        for glob in self.columns:
            found += [(f"{glob}.weight", 0), (f"{glob}.bias", 0)]
        found += [(f"{glob}.weight", 1) for glob in self.rows]
        return found

    def fill(self, other: Rules) -> Rules:
        """These rules, and each kind that is absent here from `other`.

        >>> from heddle.rules import Rules
        >>> Rules(columns=["up"]).fill(Rules(columns=["q"], units=["layers.*"]))
        Rules(columns=['up'], units=['layers.*'])
        """
        tensor = ("columns", "rows", "weights")
        mine = any(getattr(self, name) for name in tensor)
        others = ("experts", "units", "layers", "local")
        names = [name for name in others if not getattr(self, name)]
        if not mine:
            names += tensor
        changes: dict[str, Any] = {name: getattr(other, name) for name in names}
        return replace(self, **changes)

    def unmatched(self, paths: Iterable[str]) -> list[str]:
        """Globs that match none of these paths of parameters: often a spelling mistake.

        >>> from heddle.rules import Rules
        >>> Rules(columns=["**.upp"]).unmatched(["mlp.up.weight"])
        ['**.upp']
        """
        parameters = list(paths)
        modules = {path[:i] for path in parameters for i, c in enumerate(path) if c == "."}
        missing = [
            glob
            for glob in (*self.columns, *self.rows, *self.local, *"|".join(self.units).split("|"))
            if glob and not any(matches(glob, module) for module in modules)
        ]
        missing += [
            glob
            for glob in (*self.weights, *self.experts)
            if not any(matches(glob, parameter) for parameter in parameters)
        ]
        return missing

    def __repr__(self) -> str:
        kinds = ("columns", "rows", "weights", "experts", "units", "layers", "local")
        stated = [
            f"{name}={dict(value) if name == 'weights' else list(value)!r}"
            for name in kinds
            if (value := getattr(self, name))
        ]
        return f"Rules({', '.join(stated)})"


def module_list_rules(model: nn.Module) -> Rules:
    """The items of each outermost `ModuleList` as units."""
    units: list[str] = []
    for name, module in model.named_modules():
        inside = any(name.startswith(unit[:-1]) for unit in units)
        if isinstance(module, nn.ModuleList) and len(module) > 0 and not inside:
            units.append(f"{name}.*" if name else "*")
    return Rules(units=units)


def check_rules(rules: Rules, parameters: Mapping[str, torch.Size]) -> None:
    """Raises if a rule splits a dimension that its parameter lacks."""
    for name, shape in parameters.items():
        dim = rules.split_dim(name)
        if dim is not None and not 0 <= dim < len(shape):
            raise ValueError(f"a rule splits dimension {dim} of `{name}`, which has {len(shape)}")
