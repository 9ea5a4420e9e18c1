"""PyTorch's optimizers for the parameters of a job."""
import torch

from parallel import local


class Group:
    """One of torch.optim's classes, for some parameters.

    `whole`: it takes the plain tensors of one rank instead of DTensors."""

    def __init__(self, make, params, whole=False, **options):
        self.params, self.whole = params, whole
        self.own = {p: torch.nn.Parameter(local(p).detach()) if whole else p for p in params}
        self.optimizer = make(list(self.own.values()), **options)

    def step(self, lr):
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        if self.whole:
            for param, own in self.own.items():
                own.grad = local(param.grad)
        self.optimizer.step()

    def state(self, param):
        """The tensors of the optimizer's state for a parameter, by name; without the step."""
        if param not in self.own:
            return {}
        kinds = ("exp_avg", "exp_avg_sq", "momentum_buffer")
        state = self.optimizer.state[self.own[param]]
        return {kind: state[kind] for kind in kinds if state.get(kind) is not None}


def make_optimizers(job, model):
    named = list(model.named_parameters())
    by_muon = {param for name, param in named
               if job["optimizer"] == "Muon" and name.startswith("layers.") and param.ndim == 2}
    groups = []

    def add(make, chosen, **options):
        for decays in (True, False):
            params = [p for _, p in named if (p in by_muon) == chosen
                      and (p.ndim >= 2 or job["decay_vectors"]) == decays]
            if params:
                decay = job["weight_decay"] if decays else 0.0
                groups.append(Group(make, params, lr=job["lr"], weight_decay=decay, **options))

    if job["optimizer"] == "SGD":
        add(torch.optim.SGD, False, momentum=job["momentum"], dampening=job["dampening"],
            nesterov=job["nesterov"], foreach=False)
        return groups
    fused = job["optimizer"] == "AdamW" and job["implementation"] == "fused"
    add(torch.optim.AdamW, False, betas=(job["beta1"], job["beta2"]), eps=job["eps"],
        fused=fused, foreach=False)
    add(getattr(torch.optim, "Muon", None), True, whole=True, momentum=job["momentum"],
        nesterov=job["nesterov"], ns_coefficients=tuple(job["ns_coefficients"]),
        eps=job["ns_eps"], ns_steps=job["ns_steps"], adjust_lr_fn=job["adjust_lr_fn"])
    return groups
