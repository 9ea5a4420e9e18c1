"""Clip, AdamW and casts over a table of tensors in one kernel, and gradient norms in the order
of _foreach_norm: bits and TB/s."""
import struct

import torch

from nvk import EXACT, Module, cmp, main, ms, read, report, res

BF = torch.bfloat16
MODELS = {"160M": (768, 12, 256, 2048, 32000), "1.5B": (2048, 16, 512, 8192, 128256)}


def shapes(name):
    d, layers, kv, f, v = MODELS[name]
    block = [(d, d), (kv, d), (kv, d), (d, d), (f, d), (d, f), (f, d), (d,), (d,)]
    return [(v, d)] + block * layers + [(d,), (v, d)]


def table(entries):
    """Returns rows of pointers and sizes on the device, and their number."""
    data = b"".join(struct.pack("<6Q", *[t.data_ptr() for t in e], e[0].numel()) for e in entries)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).cuda()


def places(entries, size):
    counts = torch.tensor([(e[0].numel() + size - 1) // size for e in entries])
    tensor = torch.repeat_interleave(torch.arange(len(entries)), counts)
    part = torch.arange(len(tensor)) - (counts.cumsum(0) - counts)[tensor]
    return torch.stack((tensor, part), 1).to(torch.int32).contiguous().cuda(), len(tensor)


def one(name):
    tag = f"adamw {name}"
    sizes = shapes(name)
    total = sum(torch.Size(s).numel() for s in sizes)
    torch.manual_seed(6)
    p = [torch.randn(*s, device="cuda") * 0.02 for s in sizes]
    g = [(torch.randn(*s, device="cuda") * 1e-3).to(BF) for s in sizes]
    m = [torch.randn(*s, device="cuda") * 1e-4 for s in sizes]
    v = [torch.rand(*s, device="cuda") * 1e-6 for s in sizes]
    g[0][1] = 0
    v[0][1] = 0
    m[0][1] = 0
    w = [torch.empty(*s, device="cuda", dtype=BF) for s in sizes]
    start = [[x.clone() for x in xs] for xs in (p, m, v)]
    lr, step = torch.tensor(3e-4, device="cuda"), torch.tensor(7.0, device="cuda")
    # the chain of ops
    g32 = [x.float() for x in g]
    norms = torch._foreach_norm(g32, 2.0)
    norm = torch.linalg.vector_norm(torch.stack(norms))
    coef = torch.clamp(1.0 / (norm + 1e-6), max=1.0)
    module = Module(read("adamw.cu"), EXACT + ("-DIN16=1",))
    print("\n".join(report(module.log)))
    entries = list(zip(p, g, m, v, w))
    device_table = table(entries)
    # norms
    chunk, chunks = places(entries, 65536)
    most = max((e[0].numel() + 65535) // 65536 for e in entries)
    parts, mine = torch.zeros(len(p) * most, device="cuda"), torch.empty(len(p), device="cuda")
    k1, k2 = module.kernel("norm_parts"), module.kernel("norm_sums")

    def own_norm():
        k1(chunks, 512, device_table, chunk, parts, most)
        k2(len(p), 512, parts, mine, most)

    own_norm()
    torch.cuda.synchronize()
    res(f"{tag} norms of {len(p)} tensors: differing {cmp(mine, torch.stack(norms))}")
    a, b = ms(own_norm), ms(lambda: torch._foreach_norm(g32, 2.0))
    res(f"{tag} norms: {a:.3f} ms from bf16 ({2 * total / a / 1e9:.2f} TB/s), _foreach_norm of f32 {b:.3f} ms ({4 * total / b / 1e9:.2f})")
    best = None
    for unroll in (1, 2, 4):
        module = Module(read("adamw.cu"), EXACT + ("-DIN16=1", f"-DUNROLL={unroll}"))
        kernel = module.kernel("update")
        place, blocks = places(entries, 1024 * unroll)
        run_own = lambda: kernel(blocks, 256, device_table, place, lr, step, coef, 0.9, 0.95, 0.1, 1e-8)
        for xs, ys in zip((p, m, v), start):
            torch._foreach_copy_(xs, ys)
        for x in w:
            x.fill_(7)
        run_own()
        torch.cuda.synchronize()
        if best is None:
            first = [[x.clone() for x in xs] for xs in (p, m, v, w)]
        bytes_ = 28 * total
        t = ms(run_own, 10, 2)
        best = min(best or t, t)
        res(f"{tag} one kernel, {unroll} x 4 elements a thread: {t:.3f} ms ({bytes_ / t / 1e9:.2f} TB/s of 28 bytes a parameter); "
            f"{next((r for r in report(module.log) if r.startswith('update')), '').split(';')[0]}")
    for xs, ys in zip((p, m, v), start):
        torch._foreach_copy_(xs, ys)
    hyper = dict(lr=lr, beta1=0.9, beta2=0.95, weight_decay=0.1, eps=1e-8, amsgrad=False, maximize=False)
    steps = [step.clone() for _ in p]
    torch._foreach_mul_(g32, coef)
    torch._fused_adamw_(p, g32, m, v, [], steps, **hyper)
    expected = [x.to(BF) for x in p]
    torch.cuda.synchronize()
    for label, xs, ys in (("p", first[0], p), ("m", first[1], m), ("v", first[2], v), ("bf16 weight", first[3], expected)):
        bad = [(i, cmp(x, y)) for i, (x, y) in enumerate(zip(xs, ys))]
        bad = [b for b in bad if b[1] != "0"]
        res(f"{tag} {label}: {len(bad)} of {len(p)} tensors differ {bad[:1]}")
    del first
    update = ms(lambda: torch._fused_adamw_(p, g32, m, v, [], steps, **hyper), 10, 2)
    cast = ms(lambda: [x.float() for x in g], 5, 1)
    clip = ms(lambda: torch._foreach_mul_(g32, coef), 5, 1)
    back = ms(lambda: [x.to(BF) for x in p], 5, 1)
    res(f"{tag} ATen: _fused_adamw_ {update:.3f} ms ({28 * total / update / 1e9:.2f} TB/s), casts of gradients {cast:.3f}, clip {clip:.3f}, "
        f"casts of weights {back:.3f}, sum {update + cast + clip + back:.3f}; one kernel {best:.3f}")


def run():
    one("160M")
    torch.cuda.empty_cache()
    one("1.5B")


main(run)
