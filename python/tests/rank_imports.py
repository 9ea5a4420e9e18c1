"""What the processes of ranks share: imported once, before they fork (see ranks.py)."""

from __future__ import annotations

import torch
import torch.distributed.fsdp
import torch.distributed.tensor

import docs_model as docs_model
import heddle
import heddle.running
import test_to_fx as test_to_fx

# A first capture imports most of torch.
_MODEL = torch.nn.Linear(4, 1)
_STEP = heddle.capture(_MODEL, torch.ones(2, 4), loss=lambda model, x: model(x).sum())
_STEP.compile(_STEP.plan("dp=1")).start(weights=_MODEL)
