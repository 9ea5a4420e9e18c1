#!/usr/bin/env python3
"""Imports graphs that PyTorch prints and exports: import_graphs.py HEDDLE.

An imported graph without collectives runs here node by node with PyTorch's ops, and must give
PyTorch's results bit for bit. For graphs with collectives (a fake process group), compares types
and names of all values with PyTorch's trace."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
from functorch.compile import aot_function, default_partition
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.distributed.fake_pg import FakeStore

DTYPES = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "i64": torch.int64, "bool": torch.bool}


def import_file(heddle, path, *flags):
    out = path.with_suffix(".hd")
    done = subprocess.run([heddle, "import", path, "-o", out, *flags], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out.read_text()


def value(text, env):
    """Returns an argument as heddle prints it."""
    text = text.strip()
    if text.startswith("["):
        inside = text[1:-1].strip()
        return [value(part, env) for part in split(inside)] if inside else []
    if text.startswith("%"):
        return env[text[1:]]
    if text in DTYPES:
        return DTYPES[text]
    if text in ("contiguous", "preserve"):
        return {"contiguous": torch.contiguous_format, "preserve": torch.preserve_format}[text]
    if text in ("inf", "-inf", "nan"):
        return float(text)
    return None if text == "none" else json.loads(text)


def split(text):
    """Splits at commas outside brackets and strings."""
    parts, depth, quoted, begin = [], 0, False, 0
    for i, c in enumerate(text):
        quoted ^= c == '"'
        depth += (c in "[(") - (c in "])")
        if c == "," and depth == 0 and not quoted:
            parts.append(text[begin:i])
            begin = i + 1
    return parts + [text[begin:]]


def nodes(text):
    """Returns (results, op, arguments, types) of every node."""
    for line in text.splitlines():
        found = re.match(r"\s+((?:%[\w.]+(?:, )?)+)\s*= ([\w.]+)\((.*)\)\s*: ([^@]*?)(?:  ?@.*)?$", line)
        if found:
            yield re.findall(r"%([\w.]+)", found[1]), found[2], found[3], found[4].strip()


def run(text, inputs):
    """Computes the outputs of an imported graph."""
    signature = text[text.index("graph @"):]
    names = re.findall(r"%([\w.]+): ", signature[: signature.index("->")])
    env = dict(zip(names, inputs, strict=True))
    for results, op, args, _ in nodes(text):
        space, name, *overload = op.split(".")
        call = getattr(getattr(getattr(torch.ops, space), name), overload[0] if overload else "default")
        positional, keywords = [], {}
        for part in split(args) if args else []:
            key = re.match(r"\s*(\w+)=", part)
            if key:
                keywords[key[1]] = value(part[key.end():], env)
            else:
                positional.append(value(part, env))
        # Required tensors are in the order of the schema; all other arguments have names.
        taken = [a.name for a in call._schema.arguments if str(a.type) in ("Tensor", "List[Tensor]")]
        left_out = {a.name: None for a in call._schema.arguments if "Optional" in str(a.type) and not a.has_default_value()}
        out = call(**{**left_out, **dict(zip(taken, positional, strict=False)), **keywords})
        out = out if isinstance(out, (tuple, list)) else (out,)
        env.update(zip(results, out, strict=True))
    outputs = re.search(r"-> \((.*?)\) \{", signature, re.S)[1]
    return [env[name] for name in re.findall(r"%([\w.]+)", outputs)]


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(16)
        self.up = torch.nn.Linear(16, 32)
        self.down = torch.nn.Linear(32, 16)
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, x):
        a, b = torch.nn.functional.gelu(self.up(self.norm(x))).split(16, dim=-1)
        return x + self.down(torch.cat([b, a * 2], -1)) * self.scale, a.sum(0)


def check_same(got, wanted):
    assert len(got) == len(wanted), (len(got), len(wanted))
    for g, w in zip(got, wanted, strict=True):
        assert g.dtype == w.dtype and torch.equal(g, w), (g, w)


def test_export(heddle, folder):
    model, x = Block(), torch.randn(4, 16)
    program = torch.export.export(model, (x,)).run_decompositions()
    torch.export.save(program, folder / "block.pt2")
    text = import_file(heddle, folder / "block.pt2")
    assert "@up" in text and 'param 0 "norm.weight"' in text, text
    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    inputs = [state[s.target].detach() if s.target else x for s in program.graph_signature.input_specs]
    with torch.no_grad():
        check_same(run(text, inputs), list(model(x)))


def test_print_readable(heddle, folder):
    def step(x, w):
        h = torch.nn.functional.silu(x @ w)
        return (h.view(2, -1, 8).transpose(0, 1).float().mean(dim=-1, keepdim=True), h.argmax(1), h[:, 2:5] > 0.5)

    x, w = torch.randn(4, 6, dtype=torch.bfloat16), torch.randn(6, 8, dtype=torch.bfloat16)
    traced = make_fx(step, tracing_mode="fake")(x, w)
    path = folder / "step.py"
    path.write_text(traced.print_readable(print_output=False))
    check_same(run(import_file(heddle, path), [x, w]), list(step(x, w)))


def test_collectives(heddle, folder):
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
    group = dist.group.WORLD.group_name
    ops = torch.ops._c10d_functional

    def step(w, x):
        full = ops.wait_tensor(ops.all_gather_into_tensor(w.bfloat16(), 8, group))
        y = x @ full.t()
        part = ops.wait_tensor(ops.reduce_scatter_tensor(y, "avg", 8, group))
        total = ops.wait_tensor(ops.all_reduce(part.sum(), "sum", group))
        moved = ops.wait_tensor(ops.all_to_all_single(y, [2] * 8, [2] * 8, group))
        return total, moved

    traced = make_fx(step, tracing_mode="fake")(torch.randn(4, 6), torch.randn(16, 6, dtype=torch.bfloat16))
    path = folder / "collectives.py"
    path.write_text(traced.print_readable(print_output=False))
    text = import_file(heddle, path)
    metas = {n.name: n.meta["val"] for n in traced.graph.nodes if isinstance(n.meta.get("val"), torch.Tensor)}
    seen = 0
    for results, _, _, types in nodes(text):
        for name, dtype, dims in zip(results, *zip(*re.findall(r"(\w+)\[([\d,]*)\]", types), strict=True), strict=True):
            sizes = [int(d) for d in dims.split(",") if d]
            assert list(metas[name].shape) == sizes and metas[name].dtype == DTYPES[dtype], (name, types)
            seen += 1
    calls = sum(n.op == "call_function" for n in traced.graph.nodes)
    assert seen == calls, (seen, calls)
    assert text.count("comm.all_gather(") == 1 and "why=unshard" in text, text
    dist.destroy_process_group()


class Transformer(torch.nn.Module):
    """Embedding, one block with causal attention, and a loss over a vocabulary."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(37, 16)
        self.norm = torch.nn.Parameter(torch.randn(16))
        self.qkv = torch.nn.Linear(16, 48, bias=False)
        self.out = torch.nn.Linear(16, 16, bias=False)
        self.head = torch.nn.Linear(16, 37, bias=False)

    def forward(self, tokens, labels):
        h = self.embedding(tokens)
        # torch.nn.RMSNorm adds in place.
        normal = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6) * self.norm
        q, k, v = (t.view(2, 6, 4, 4).transpose(1, 2) for t in self.qkv(normal).chunk(3, -1))
        scores = (q @ k.transpose(-1, -2) * 0.5).masked_fill(torch.ones(6, 6).triu(1).bool(), float("-inf"))
        h = h + self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(2, 6, 16))
        return torch.nn.functional.cross_entropy(self.head(h).flatten(0, 1), labels.flatten())


def test_training_step(heddle, folder):
    """Loss and gradients of a whole step, traced through autograd."""
    model = Transformer()
    names, params = zip(*model.named_parameters(), strict=True)

    def step(*args):
        weights, (tokens, labels) = args[: len(names)], args[len(names):]
        loss = torch.func.functional_call(model, dict(zip(names, weights, strict=True)), (tokens, labels))
        return loss, *torch.autograd.grad(loss, weights)

    inputs = [p.detach().requires_grad_() for p in params] + [torch.randint(37, (2, 6)) for _ in range(2)]
    traced = make_fx(step, tracing_mode="fake")(*inputs)
    path = folder / "training.py"
    path.write_text(traced.print_readable(print_output=False))
    detached = [x.detach() for x in inputs]
    check_same(run(import_file(heddle, path), detached), list(traced(*detached)))


def test_exported_transformer(heddle, folder):
    model = Transformer()
    batch = tuple(torch.randint(37, (2, 6)) for _ in range(2))
    program = torch.export.export(model, batch).run_decompositions()
    torch.export.save(program, folder / "transformer.pt2")
    text = import_file(heddle, folder / "transformer.pt2")
    state = {**dict(model.named_parameters()), **program.constants}
    inputs = [state[s.target].detach() for s in program.graph_signature.input_specs if s.target]
    with torch.no_grad():
        check_same(run(text, [*inputs, *batch]), [program.module()(*batch)])


FSDP = """heddle plan 1
mesh [dp=2]
input "*" [dp]
param "**" store [dp] compute [-]
"""


def parallelize(heddle, path, plan):
    path.with_suffix(".plan").write_text(plan)
    return subprocess.run([heddle, "parallelize", path.with_suffix(".hd"), f"--plan={path.with_suffix('.plan')}"], capture_output=True,
                          text=True, check=False)


def test_named_parameters(heddle, folder):
    """Steps that make_fx traces with parameters in a dictionary and as flat arguments: roles,
    results, and the pipeline fsdp."""
    model = Transformer()
    params = {name: param.detach().requires_grad_() for name, param in model.named_parameters()}
    batch = [torch.randint(37, (2, 6)) for _ in range(2)]

    def step(params, tokens, labels):
        loss = torch.func.functional_call(model, params, (tokens, labels))
        return loss, dict(zip(params, torch.autograd.grad(loss, list(params.values())), strict=True))

    def flat(*args):
        loss, grads = step(dict(zip(params, args, strict=False)), *args[len(params):])
        return loss, *grads.values()

    inputs = [*params.values(), *batch]
    wanted = [t.detach() for t in flat(*inputs)]
    cases = (("dict", make_fx(step, tracing_mode="fake")(params, *batch), "--params=params_*"),
             ("flat", make_fx(flat, tracing_mode="fake")(*inputs), f"--params=0-{len(params) - 1}"))
    for name, traced, flag in cases:
        path = folder / f"{name}.py"
        path.write_text(traced.print_readable(print_output=False))
        text = import_file(heddle, path, "--global", flag)
        assert text.startswith("heddle 1 global") and " bwd:" in text, text
        assert text.count(" param ") == text.count("grad ") == len(params) and "loss %" in text, text
        check_same(run(text, [t.detach() for t in inputs]), wanted)
        done = parallelize(heddle, path, FSDP)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("why=unshard") >= 1 and "comm.reduce_scatter" in done.stdout, done.stdout
    import_file(heddle, path, flag)
    done = parallelize(heddle, path, FSDP)
    assert done.returncode == 1 and "heddle import --global" in done.stderr, done.stderr


def test_exported_is_parallelized(heddle, folder):
    """Imports an exported model as a global graph. Errors about values that a plain export lacks
    name the remedy."""
    model, x = Block(), torch.randn(4, 16)
    program = torch.export.export(model, (x,))
    path = folder / "plain.pt2"
    torch.export.save(program, path)
    done = subprocess.run([heddle, "import", path], capture_output=True, text=True, check=True)
    assert "run_decompositions()" in done.stderr, done.stderr
    torch.export.save(program.run_decompositions(), path)
    done = subprocess.run([heddle, "import", path], capture_output=True, text=True, check=True)
    assert "run_decompositions()" not in done.stderr, done.stderr
    import_file(heddle, path, "--global")
    done = parallelize(heddle, path, FSDP)
    assert done.returncode == 0 and "why=unshard" in done.stdout, done.stderr


def stats(heddle, path):
    return json.loads(subprocess.run([heddle, "stats", path, "--json"], capture_output=True, text=True, check=True).stdout)


def test_forward_and_backward(heddle, folder):
    """The values that a forward graph saves are the inputs of its backward graph, and both give
    PyTorch's results."""
    graphs = {}

    def keep(name):
        def compile_graph(module, _):
            graphs[name] = module
            return torch._dynamo.disable(module.forward)
        return compile_graph

    def loss(x, up, down):
        return torch.nn.functional.silu(x @ up) @ down

    args = [torch.randn(8, 16, requires_grad=True), torch.randn(16, 32, requires_grad=True), torch.randn(32, 16, requires_grad=True)]
    out = aot_function(loss, fw_compiler=keep("forward"), bw_compiler=keep("backward"), partition_fn=default_partition)(*args)
    tangent = torch.ones_like(out)
    out.backward(tangent)
    texts = {}
    for name, module in graphs.items():
        path = folder / f"{name}.py"
        path.write_text(module.print_readable(print_output=False))
        texts[name] = import_file(heddle, path)
    end = stats(heddle, folder / "forward.hd")["end_bytes"]
    given = stats(heddle, folder / "backward.hd")["input_bytes"]
    assert end == given, (end, given)
    made = run(texts["forward"], [a.detach() for a in args])
    check_same(made[:1], [out.detach()])
    check_same(run(texts["backward"], [*made[1:], tangent]), [a.grad for a in args])


def test_joint_graph(heddle, folder):
    """Splits and joins a joint graph with gathers of weights: the second split equals the first."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
    group = dist.group.WORLD.group_name
    ops = torch.ops._c10d_functional

    class Gather(torch.autograd.Function):
        @staticmethod
        def forward(_, shard):
            return ops.wait_tensor(ops.all_gather_into_tensor(shard, 8, group))

        @staticmethod
        def backward(_, grad):
            return ops.wait_tensor(ops.reduce_scatter_tensor(grad, "avg", 8, group))

    def joint(primals, tangents):
        x, up, down = primals
        out = torch.nn.functional.silu(x @ Gather.apply(up)) @ Gather.apply(down)
        return out, torch.autograd.grad(out, [up, down], tangents)

    primals = [torch.randn(8, 16), torch.randn(2, 32, requires_grad=True), torch.randn(4, 16, requires_grad=True)]
    traced = make_fx(joint, tracing_mode="fake")(primals, torch.randn(8, 16))
    # AOTAutograd's names.
    for node, name in zip(list(traced.graph.find_nodes(op="placeholder")), ("primals_1", "primals_2", "primals_3", "tangents_1"), strict=True):
        node.target = node.name = name
    traced.graph.set_codegen(torch.fx.graph.CodeGen())
    traced.recompile()
    path = folder / "joint.py"
    path.write_text(traced.print_readable(print_output=False))
    text = import_file(heddle, path)
    assert text.count("why=unshard") == 2 and text.count("why=grad") == 2, text

    def opt(pipeline):
        done = subprocess.run([heddle, "opt", path.with_suffix(".hd"), f"--pipeline={pipeline}"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    for policy in ("none", "full", "selective", "min-cut"):
        once = f"clean, checkpoint{{policy={policy}}}, rematerialize, reshard-after-forward{{policy=always}}, dce, partition"
        first = opt(once)
        forward = first[: first.index("graph @bwd")]
        assert forward.count("comm.all_gather(") == 2 and first.count("comm.all_gather(") > 2, first
        for again in ("join, partition", "join, clean, partition"):
            assert opt(f"{once}, {again}") == first, (policy, again)
    dist.destroy_process_group()


def main():
    heddle = sys.argv[1]
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as folder:
        for test in (test_export, test_exported_transformer, test_print_readable, test_training_step, test_forward_and_backward, test_collectives,
                     test_joint_graph, test_named_parameters, test_exported_is_parallelized):
            test(heddle, pathlib.Path(folder))
            print(test.__name__, "ok")


if __name__ == "__main__":
    main()
