"""SwiGLU forward and backward and RoPE in one kernel each: bits compared with ATen's ops
(denormals kept), and TB/s."""
import torch

from nvk import EXACT, L, Module, cmp, graph_ms, main, read, report, res

BF = torch.bfloat16
aten = torch.ops.aten


def values(n):
    """Returns normal numbers mixed with random bits, which include every kind of bf16."""
    x = torch.randn(n, device="cuda").to(BF) * 4
    k = n // 8
    x[:k] = torch.randint(-32768, 32767, (k,), device="cuda").to(torch.int16).view(BF)
    return x


def swiglu(rows, width):
    n = rows * width
    tag = f"elements {rows}x{width}"
    sets = [[values(n) for _ in range(5)] for _ in range(2 if n > 1 << 26 else 4)]
    dh, a, b, da, db = sets[0]
    h = torch.full_like(a, 7.0)
    h2 = torch.nn.functional.silu(a) * b
    s = torch.nn.functional.silu(a)
    db2, da2 = dh * s, aten.silu_backward(dh * b, a)
    for each in (1, 2, 4):
        module = Module(read("elements.cu"), EXACT + (f"-DEACH={each}",))
        f, g = module.kernel("swiglu"), module.kernel("swiglu_back")
        grid = (n // 8 + 256 * each - 1) // (256 * each)
        if each == 1:
            print("\n".join(report(module.log)))
            f(grid, 256, a, b, h, L(n // 8))
            da.fill_(7)
            db.fill_(7)
            g(grid, 256, dh, a, b, da, db, L(n // 8))
            torch.cuda.synchronize()
            res(f"{tag} SwiGLU: differing h {cmp(h, h2)} da {cmp(da, da2)} db {cmp(db, db2)} of {n}")
        turn = [0]

        def own_f():
            turn[0] += 1
            p = sets[turn[0] % len(sets)]
            f(grid, 256, p[1], p[2], p[3], L(n // 8))

        def own_b():
            turn[0] += 1
            p = sets[turn[0] % len(sets)]
            g(grid, 256, p[0], p[1], p[2], p[3], p[4], L(n // 8))

        x, y = graph_ms(own_f, 8, 10), graph_ms(own_b, 8, 10)
        res(f"{tag} SwiGLU, {each} x 8 elements a thread: forward {x * 1e3:.1f} us ({6 * n / x / 1e9:.2f} TB/s), backward {y * 1e3:.1f} us "
            f"({10 * n / y / 1e9:.2f} TB/s)")

    def theirs_f():
        torch.nn.functional.silu(a) * b

    def theirs_b():
        s = torch.nn.functional.silu(a)
        dh * s
        aten.silu_backward(dh * b, a)

    res(f"{tag} SwiGLU by ATen: forward {graph_ms(theirs_f, 4, 10) * 1e3:.1f} us, backward with h's silu again {graph_ms(theirs_b, 4, 10) * 1e3:.1f} us")


def rope(batch, length, heads):
    tag = f"elements rope {batch}x{length}x{heads}x64"
    x = values(batch * length * heads * 64).view(batch, length, heads, 64)
    y = torch.full_like(x, 7.0)
    angle = torch.outer(torch.arange(length, device="cuda").float(), 1e4 ** (-torch.arange(0, 64, 2, device="cuda").float() / 64))
    turns = torch.polar(torch.ones_like(angle), angle)
    module = Module(read("elements.cu"))
    kernel = module.kernel("rope")
    n = x.numel() // 8

    def theirs(conj):
        z = torch.view_as_complex(x.float().reshape(batch, length, heads, 32, 2))
        t = turns[None, :, None, :]
        return torch.view_as_real(z * (t.conj() if conj else t)).flatten(3).to(BF)

    real = torch.view_as_real(turns).contiguous()
    for conj in (False, True):
        y.fill_(7)
        kernel((n + 255) // 256, 256, x, real, y, L(n), heads, length, -1.0 if conj else 1.0)
        torch.cuda.synchronize()
        res(f"{tag}{' conjugate' if conj else ''}: differing {cmp(y, theirs(conj))} of {x.numel()}")
    own = graph_ms(lambda: kernel((n + 255) // 256, 256, x, real, y, L(n), heads, length, 1.0), 8, 10)
    res(f"{tag}: {own * 1e3:.1f} us ({4 * x.numel() / own / 1e9:.2f} TB/s) against ATen {graph_ms(lambda: theirs(False), 4, 10) * 1e3:.1f} us")


def run():
    torch.manual_seed(8)
    swiglu(16384, 8192)
    swiglu(8192, 2048)
    rope(4, 4096, 40)
    rope(8, 1024, 16)


main(run)
