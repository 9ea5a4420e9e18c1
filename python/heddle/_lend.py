"""A model that holds fake tensors for a while, and is as it was afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from ._torch_names import annotate

Cast = Callable[[Tensor], Tensor]


class ParameterCast:
    """Casts a parameter where the step first reads it.

    Backward runs in the reverse order of the forward ops. If all casts came first, all gradients
    of f32 would come last, and no reduction could overlap with backward.
    """

    def __init__(self, dtype: torch.dtype | None) -> None:
        self._dtype = dtype
        self._known: dict[tuple[int, bool], Tensor] = {}

    def __call__(self, tensor: Tensor) -> Tensor:
        if self._dtype is None or not tensor.is_floating_point() or tensor.dtype == self._dtype:
            return tensor
        key = (id(tensor), torch.is_grad_enabled())
        if key not in self._known:
            self._known[key] = tensor.to(self._dtype)
        return self._known[key]


class _Parameters(dict[str, "Tensor | None"]):
    """The parameters of a module. Attribute access casts, so it covers `self.child.weight` too."""

    def __init__(self, items: Mapping[str, Tensor | None], cast: Cast) -> None:
        super().__init__(items)
        self._cast = cast

    def __getitem__(self, name: str) -> Tensor | None:
        tensor = super().__getitem__(name)
        return None if tensor is None else self._cast(tensor)


def _copy(value: Any) -> Any:
    """A copy of a container that the forward pass may change in place."""
    return value.copy() if type(value) in (list, dict, set) else value


def _restore(now: dict[str, Any], before: dict[str, Any], contents: dict[str, Any]) -> None:
    now.clear()
    now.update(before)
    for name, value in contents.items():
        held = before[name]
        if isinstance(held, list):
            held[:] = value
        else:
            held.clear()
            held.update(value)


class _Loan:
    def __init__(self, modules: list[nn.Module], leaves: Mapping[int, Tensor], cast: Cast) -> None:
        self._modules = modules
        self._leaves = leaves
        self._cast = cast
        self._before = [(m, m.__dict__, dict(m.__dict__), self._contents(m)) for m in modules]

    @staticmethod
    def _contents(module: nn.Module) -> dict[str, Any]:
        """What containers hold, of the module's own state and of the user's."""
        return {n: _copy(v) for n, v in module.__dict__.items() if type(v) in (list, dict, set)}

    def _swapped(self, value: Any, cast: Cast) -> Any:
        """Containers of parameters (`nn.LSTM` has one) hold their leaves."""
        if isinstance(value, Tensor):
            return cast(self._leaves[id(value)]) if id(value) in self._leaves else value
        if type(value) in (list, tuple) and any(id(item) in self._leaves for item in value):
            return type(value)(self._swapped(item, cast) for item in value)
        return value

    def start(self) -> None:
        for module, now, _, _ in self._before:
            for name, value in list(now.items()):
                now[name] = self._swapped(value, lambda leaf: leaf)
            parameters, buffers = module._parameters, module._buffers
            now["_parameters"] = _Parameters(
                {n: None if p is None else self._leaves[id(p)] for n, p in parameters.items()},
                self._cast,
            )
            now["_buffers"] = {
                n: None if b is None else self._leaves[id(b)] for n, b in buffers.items()
            }

    def aliases(self) -> dict[int, list[tuple[str, Any]]]:
        """Attributes of modules that hold parameters, besides the registered ones."""
        found: dict[int, list[tuple[str, Any]]] = {}
        for module, _, before, _ in self._before:
            for name, value in before.items():
                if self._swapped(value, lambda leaf: leaf) is not value:
                    found.setdefault(id(module), []).append((name, value))
        return found

    def cast_aliases(self, module: nn.Module, aliases: list[tuple[str, Any]]) -> None:
        for name, value in aliases:
            module.__dict__[name] = self._swapped(value, self._cast)

    def end(self) -> None:
        for _, now, before, contents in self._before:
            _restore(now, before, contents)


@contextlib.contextmanager
def lend(
    model: nn.Module, leaves: Mapping[int, Tensor], cast: Cast, names: Mapping[int, str]
) -> Iterator[None]:
    """Replaces the model's tensors (`leaves` by `id`), and annotates calls with module paths.

    Afterwards every module has the attributes that it had, whatever its forward pass wrote to them.
    """
    modules = list(model.modules())
    loan = _Loan(modules, leaves, cast)
    aliases = loan.aliases()
    opened: list[Any] = []

    def before(module: nn.Module, args: Any) -> None:
        name = names.get(id(module))
        scope = contextlib.nullcontext() if name is None else annotate({"heddle_scope": name})
        scope.__enter__()
        opened.append(scope)
        if id(module) in aliases:
            loan.cast_aliases(module, aliases[id(module)])

    def after(module: nn.Module, args: Any, result: Any) -> None:
        opened.pop().__exit__(None, None, None)

    def close() -> None:
        """An interrupt skips hooks, so scopes may be open."""
        while opened:
            opened.pop().__exit__(None, None, None)

    with contextlib.ExitStack() as stack:
        stack.callback(loan.end)
        stack.callback(close)
        loan.start()
        for hook in (
            register_module_forward_pre_hook(before),
            register_module_forward_hook(after, always_call=True),
        ):
            stack.callback(hook.remove)
        yield
