"""Runs on one process: the bits of eager training, checkpoints, and mistakes."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import heddle

torch = pytest.importorskip("torch")

from heddle._device import DeviceProgram  # noqa: E402
from heddle._parts import same_bits  # noqa: E402
from step_checks import deterministic  # noqa: E402
from test_to_fx import Uneven, uneven_loss  # noqa: E402


def batches(count: int) -> list[dict[str, Any]]:
    torch.manual_seed(1)
    return [
        {"x": torch.randint(0, 11, (8, 6)), "y": torch.randint(0, 7, (8, 6))} for _ in range(count)
    ]


def model() -> Any:
    torch.manual_seed(0)
    return Uneven()


def program(**options: Any) -> heddle.Program:
    step = heddle.capture(model(), batches(1)[0], loss=uneven_loss, **options)
    return step.compile(step.plan("dp=1"))


OPTIMIZERS = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2),
    "sgd": lambda p: torch.optim.SGD(p, lr=1e-1, momentum=0.9),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_has_eager_bits(name: str) -> None:
    eager = model()
    run = program().start(weights=eager)
    theirs, ours = OPTIMIZERS[name](eager.parameters()), OPTIMIZERS[name](run.parameters())
    with deterministic():
        for batch in batches(5):
            want = uneven_loss(eager, batch)
            want.backward()
            got = run(batch)
            assert same_bits(got, want)
            torch.nn.utils.clip_grad_norm_(eager.parameters(), 0.5)
            run.clip_grad_norm_(0.5)
            for optimizer in (theirs, ours):
                optimizer.step()
                optimizer.zero_grad()
    for parameter, (name, part) in zip(eager.parameters(), run.named_parameters(), strict=True):
        assert torch.allclose(part, parameter, rtol=1e-6, atol=1e-7), name
    assert run.steps == 5


def test_the_fx_graph_runs_without_the_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("heddle._torch")
    compiled = program(optimizer=heddle.AdamW(max_norm=1.0))
    batch, results = batches(1)[0], []
    for missing in (False, True):
        if missing:
            monkeypatch.setitem(sys.modules, "heddle._torch", None)
            monkeypatch.delattr(heddle, "_torch", raising=False)
        run = compiled.start(weights=model())
        assert isinstance(run._module, torch.nn.Module) == missing
        with deterministic():
            losses = [run(batch, lr=1e-2) for _ in range(3)]
        results.append([*losses, *run.parameters()])
    assert all(same_bits(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("options", [{}, {"optimizer": heddle.AdamW(max_norm=1.0)}])
def test_a_program_that_is_bound_to_its_tensors(options: dict[str, Any]) -> None:
    """As on a GPU, but for kernels and recording."""
    pytest.importorskip("heddle._torch")
    compiled = program(**options)
    plain, bound = (compiled.start(weights=model()) for _ in range(2))
    bound._module = DeviceProgram(compiled.graph, torch.device("cpu"))
    with deterministic():
        for number, batch in enumerate(batches(4)):
            if number == 2:
                # An optimizer may replace what a parameter holds.
                for run in (plain, bound):
                    first = next(run.parameters())
                    first.data = first.data * 0.5
            assert same_bits(plain(batch), bound(batch))
    for one, other in zip(plain.parameters(), bound.parameters(), strict=True):
        assert same_bits(one.detach(), other.detach())
        assert options or same_bits(one.grad, other.grad)
    assert bound._module.notes == [] and not bound._module.is_recorded


def test_gradients_are_tensors_of_their_own() -> None:
    """Two gradients that are one tensor of the graph, and a gradient that is also the input."""

    class Sum(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = (torch.nn.Parameter(torch.zeros(4)) for _ in range(2))

    def loss(module: Any, batch: Any) -> Any:
        return ((module.a + module.b) * batch["x"]).sum()

    x = torch.arange(4.0)
    step = heddle.capture(Sum(), {"x": x}, loss=loss)
    run = step.compile(step.plan("dp=1")).start(weights=Sum())
    run({"x": x})
    a, b = run.parameters()
    a.grad.add_(1)
    assert b.grad.tolist() == x.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_gradients_accumulate() -> None:
    eager = model()
    run = program().start(weights=eager)
    with deterministic():
        for batch in batches(3):
            uneven_loss(eager, batch).backward()
            run(batch)
    for parameter, (name, part) in zip(eager.parameters(), run.named_parameters(), strict=True):
        assert same_bits(part.grad, parameter.grad), name


def test_the_optimizer_in_the_graph() -> None:
    eager = model()
    run = program(optimizer=heddle.AdamW(lr=1e-2, max_norm=1.0)).start(weights=eager)
    before = copy.deepcopy(eager)
    optimizer = torch.optim.AdamW(
        eager.parameters(), lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1, fused=True
    )
    given = heddle.AdamW(lr=1e-2, max_norm=1.0)
    for group in optimizer.param_groups:
        group.update(betas=given.betas, eps=given.eps, weight_decay=given.weight_decay)
    with deterministic():
        for batch in batches(4):
            want = uneven_loss(eager, batch)
            want.backward()
            norm = torch.nn.utils.clip_grad_norm_(eager.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            assert same_bits(run(batch), want)
            assert same_bits(run.metrics["grad_norm"], norm)
    state = dict(run.named_parameters())
    for name, parameter in eager.named_parameters():
        assert same_bits(state[name].detach(), parameter.detach()), name
        assert parameter.grad is None and state[name].grad is None
    # The module that gave the weights is untouched by the run.
    assert not same_bits(before.head.weight, state["head.weight"])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_resume_has_the_same_bits(name: str, tmp_path: Path, program_file: Path) -> None:
    compiled, data = program(), batches(6)
    run = compiled.start(weights=model())
    optimizer = OPTIMIZERS[name](run.parameters())
    losses = []
    for i, batch in enumerate(data):
        losses.append(run(batch))
        optimizer.step()
        optimizer.zero_grad()
        if i == 2:
            run.save(tmp_path / "saved", optimizer=optimizer)
    listed = subprocess.run(
        [program_file, "checkpoint", "verify", tmp_path / "saved"], capture_output=True, text=True
    )
    assert listed.returncode == 0, listed.stderr
    again = compiled.start()
    resumed = OPTIMIZERS[name](again.parameters())
    assert again.load(tmp_path / "saved", optimizer=resumed) == 3
    for batch, want in zip(data[3:], losses[3:], strict=True):
        assert same_bits(again(batch), want)
        resumed.step()
        resumed.zero_grad()
    assert again.hashes() == run.hashes()


def test_state_dict_and_whole_tensors() -> None:
    eager = model()
    run = program().start(weights=eager)
    assert set(run.state_dict()) == {name for name, _ in eager.named_parameters()}
    assert same_bits(run.whole("head.weight"), eager.head.weight)
    eager.load_state_dict(run.state_dict())


def test_mistakes_name_both_values(tmp_path: Path) -> None:
    compiled = program()
    run = compiled.start(weights=model())
    with pytest.raises(heddle.RunError, match=r"`x` is i64\[4, 6\], expected i64\[8, 6\]"):
        run({"x": torch.zeros(4, 6, dtype=torch.int64), "y": torch.zeros(8, 6, dtype=torch.int64)})
    with pytest.raises(heddle.RunError, match="the batch has no `y`; it has `x`"):
        run({"x": torch.zeros(8, 6, dtype=torch.int64)})
    with pytest.raises(heddle.RunError, match="the batch has no tensor: list"):
        run([])
    with pytest.raises(heddle.RunError, match="no checkpoint"):
        run.load(tmp_path / "none")
    with pytest.raises(heddle.RunError, match="`embed.weight` is on meta"):
        with torch.device("meta"):
            compiled.start(weights=Uneven())
    with pytest.raises(heddle.RunError, match="'gpu' is not a device"):
        compiled.start(device="gpu")
    if not torch.cuda.is_available():
        with pytest.raises(heddle.RunError, match="torch finds no GPU here"):
            compiled.start(device="cuda")
    step = heddle.capture(model(), batches(1)[0], loss=uneven_loss)
    with pytest.raises(heddle.RunError, match="the program is for 4 ranks; give a DeviceMesh"):
        step.compile(step.plan("dp=4")).start()
