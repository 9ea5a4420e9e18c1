"""Measures cuDNN's deterministic backward of attention through cudnn-frontend 1.18: whether it
repeats its bits, and its time."""
import os
import sys

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "fe"))
from nvk import differing, main, ms, res

BF = torch.bfloat16
SHAPES = [(4, 32, 8, 4096, 64), (8, 12, 4, 1024, 64), (4, 32, 32, 4096, 64), (2, 32, 8, 8192, 128)]


def tensors(b, h, kv, t, d, bshd):
    def make(heads):
        x = torch.randn(b, t, heads, d, device="cuda").to(BF) if bshd else torch.randn(b, heads, t, d, device="cuda").to(BF)
        return x.transpose(1, 2) if bshd else x
    return make(h), make(kv), make(kv), make(h)  # q, k, v, gradient of o


def like(x):
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="cuda")


def forward_graph(cudnn, handle, q, k, v, scale):
    g = cudnn.pygraph(io_data_type=cudnn.data_type.BFLOAT16, intermediate_data_type=cudnn.data_type.FLOAT,
                      compute_data_type=cudnn.data_type.FLOAT, handle=handle)
    tq, tk, tv = (g.tensor_like(x) for x in (q, k, v))
    o, stats = g.sdpa(q=tq, k=tk, v=tv, generate_stats=True, attn_scale=scale, use_causal_mask=True)
    out, st = like(q), torch.empty(*q.shape[:3], 1, device="cuda")
    o.set_output(True).set_dim(list(out.shape)).set_stride(list(out.stride()))
    stats.set_output(True).set_dim(list(st.shape)).set_stride(list(st.stride())).set_data_type(cudnn.data_type.FLOAT)
    build(cudnn, g)
    workspace = torch.empty(max(1, g.get_workspace_size()), device="cuda", dtype=torch.uint8)
    return (lambda: g.execute({tq: q, tk: k, tv: v, o: out, stats: st}, workspace, handle=handle)), out, st


def build(cudnn, g):
    g.validate()
    g.build_operation_graph()
    g.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    g.check_support()
    g.build_plans()


def backward_graph(cudnn, handle, q, k, v, o, do, stats, scale, deterministic):
    g = cudnn.pygraph(io_data_type=cudnn.data_type.BFLOAT16, intermediate_data_type=cudnn.data_type.FLOAT,
                      compute_data_type=cudnn.data_type.FLOAT, handle=handle)
    tq, tk, tv, to, tdo, ts = (g.tensor_like(x) for x in (q, k, v, o, do, stats))
    results = g.sdpa_backward(q=tq, k=tk, v=tv, o=to, dO=tdo, stats=ts, attn_scale=scale, use_causal_mask=True,
                              use_deterministic_algorithm=deterministic)
    outs = [like(x) for x in (q, k, v)]
    for r, x in zip(results, outs):
        r.set_output(True).set_dim(list(x.shape)).set_stride(list(x.stride()))
    build(cudnn, g)
    size = g.get_workspace_size()
    workspace = torch.empty(max(1, size), device="cuda", dtype=torch.uint8)
    table = dict(zip((tq, tk, tv, to, tdo, ts, *results), (q, k, v, o, do, stats, *outs)))
    name = ""
    try:
        name = g.get_plan_name_at_index(0)
    except Exception as error:
        name = str(error)[:40]
    return (lambda: g.execute(table, workspace, handle=handle)), outs, size, name


def repeats(function, outs, runs=20):
    """Returns, for each result, the number of later runs with the bits of the first."""
    function()
    torch.cuda.synchronize()
    first = [x.clone() for x in outs]
    same = [0] * len(outs)
    for _ in range(runs):
        for x in outs:
            x.fill_(float("nan"))
        function()
        torch.cuda.synchronize()
        for i, x in enumerate(outs):
            same[i] += int(torch.equal(x.contiguous().view(torch.int16), first[i].contiguous().view(torch.int16)))
    return same, first


def error(x, y):
    x, y = x.float(), y.float()
    return float((x - y).norm() / y.norm())


def with_cudnn(shape, bshd):
    import cudnn
    b, h, kv, t, d = shape
    tag = f"cudnn-frontend B{b} H{h}/{kv} T{t} d{d} {'BSHD' if bshd else 'BHSD'}"
    scale = d ** -0.5
    handle = cudnn.create_handle()
    cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
    q, k, v, do = tensors(*shape, bshd)
    run, o, stats = forward_graph(cudnn, handle, q, k, v, scale)
    run()
    torch.cuda.synchronize()
    res(f"{tag}: forward {ms(run):.3f} ms")
    firsts = {}
    for deterministic in (False, True):
        try:
            run, outs, size, name = backward_graph(cudnn, handle, q, k, v, o, do, stats, scale, deterministic)
            same, firsts[deterministic] = repeats(run, outs)
            res(f"{tag}: backward deterministic={deterministic}: same bits dQ {same[0]}/20 dK {same[1]}/20 dV {same[2]}/20, "
                f"{ms(run):.3f} ms, workspace {size / 2**20:.0f} MiB, plan {name}")
        except Exception as e:
            res(f"{tag}: backward deterministic={deterministic}: FAILED {type(e).__name__} {str(e)[:250]}".replace("\n", " "))
    if len(firsts) == 2:
        res(f"{tag}: deterministic against not: relative distance dQ {error(firsts[True][0], firsts[False][0]):.2e}, differing bits "
            f"dQ {differing(firsts[True][0], firsts[False][0])} dK {differing(firsts[True][1], firsts[False][1])} "
            f"dV {differing(firsts[True][2], firsts[False][2])} of {firsts[True][0].numel()}, {firsts[True][1].numel()}")


def with_torch(shape):
    """cuDNN and flash as torch calls them, forward and backward."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    b, h, kv, t, d = shape
    for name, backend, deterministic in (("cudnn", SDPBackend.CUDNN_ATTENTION, False), ("flash", SDPBackend.FLASH_ATTENTION, False),
                                         ("flash", SDPBackend.FLASH_ATTENTION, True)):
        tag = f"torch B{b} H{h}/{kv} T{t} d{d} {name} deterministic={deterministic}"
        for grouped in (True, False):
            try:
                torch.use_deterministic_algorithms(deterministic)
                q, k, v, do = tensors(*shape, True)
                if not grouped:
                    k, v = (x.repeat_interleave(h // kv, 1) for x in (k, v))
                leaves = [x.detach().requires_grad_() for x in (q, k, v)]
                with sdpa_kernel(backend):
                    o = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=True, enable_gqa=grouped and h != kv)
                    forward = ms(lambda: torch.nn.functional.scaled_dot_product_attention(
                        *[x.detach() for x in leaves], is_causal=True, enable_gqa=grouped and h != kv))
                    backward = lambda: torch.autograd.grad(o, leaves, do, retain_graph=True)
                    first = [x.clone() for x in backward()]
                    same = [0] * 3
                    for _ in range(20):
                        for i, x in enumerate(backward()):
                            same[i] += int(torch.equal(x, first[i]))
                    res(f"{tag} {'grouped' if grouped else 'repeated'}: forward {forward:.3f} ms, backward {ms(backward):.3f} ms, "
                        f"same bits dQ {same[0]}/20 dK {same[1]}/20 dV {same[2]}/20")
                break
            except Exception as e:
                res(f"{tag} {'grouped' if grouped else 'repeated'}: FAILED {str(e)[:150]}".replace("\n", " "))
            finally:
                torch.use_deterministic_algorithms(False)


def run():
    torch.manual_seed(1)
    try:
        import cudnn
        res(f"cudnn-frontend {cudnn.__version__}, cuDNN {cudnn.backend_version()}, torch's cuDNN {torch.backends.cudnn.version()}")
    except Exception as e:
        res(f"cudnn-frontend: import FAILED {type(e).__name__} {str(e)[:200]}")
    for shape in SHAPES:
        for bshd in (True, False):
            if not bshd and shape not in SHAPES[:2]:
                continue
            try:
                with_cudnn(shape, bshd)
            except Exception as e:
                res(f"cudnn-frontend {shape}: FAILED {type(e).__name__} {str(e)[:250]}".replace("\n", " "))
        with_torch(shape)


main(run)
