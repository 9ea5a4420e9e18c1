"""RMSNorm forward with residual, dx with its neighbors, and dgamma: bits and time compared with
ATen's ops."""
import torch

from nvk import EXACT, Module, cmp, graph_ms, main, read, report, res

BF = torch.bfloat16


def random(*shape):
    x = torch.randn(*shape, device="cuda")
    if len(shape) == 2:  # rows that are hard: zeros, tiny, huge, denormal, infinite, NaN
        x[1] = 0
        x[2] *= 1e-38
        x[3] *= 1e36
        x[4, 5] = float("inf")
        x[5, 7] = float("nan")
        x[6] *= 1e-20
    return x.to(BF)


def one(rows, width):
    tag = f"norm {rows}x{width}"
    module = Module(read("norm.cu"), EXACT + (f"-DD={width}",))
    print("\n".join(report(module.log)))
    x, f, g1, g2, dres = (random(rows, width) for _ in range(5))
    w = random(width)
    y, s, out, dy, dx = (torch.full_like(x, 7.0) for _ in range(5))
    rstd = torch.empty(rows, 1, device="cuda")
    forward = module.kernel("add_norm")
    forward(rows, 128, x, f, w, s, y, rstd, 1e-5)
    s2 = x + f
    y2, rstd2 = torch.ops.aten._fused_rms_norm(s2, [width], w, 1e-5)
    torch.cuda.synchronize()
    res(f"{tag} forward: differing sum {cmp(s, s2)} y {cmp(y, y2)} rstd {cmp(rstd, rstd2.view(rows, 1))}")
    dy2 = g1 + g2
    dx2, dw2 = torch.ops.aten._fused_rms_norm_backward(dy2, s2, [width], rstd2, w, [True, True])
    out2 = dres + dx2
    alone, fused = module.kernel("norm_dx_alone"), module.kernel("norm_dx")
    alone(rows, 128, dy2, s2, rstd2, w, dx)
    fused(rows, 128, g1, g2, s2, rstd2, w, dres, dy, out)
    torch.cuda.synchronize()
    res(f"{tag} dx: differing dx {cmp(dx, dx2)}, fused dy {cmp(dy, dy2)} out {cmp(out, out2)} of {dx.numel()}")
    # Uses rows without NaN: otherwise every gradient of gamma is NaN.
    clean, cleanx = (torch.randn(rows, width, device="cuda").to(BF) for _ in range(2))
    _, rc = torch.ops.aten._fused_rms_norm(cleanx, [width], w, 1e-5)
    _, dw2 = torch.ops.aten._fused_rms_norm_backward(clean, cleanx, [width], rc, w, [True, True])
    parts, dw = torch.empty(32, width, device="cuda"), torch.empty_like(w)
    one_, two_ = module.kernel("gamma_parts"), module.kernel("gamma_sum")

    def gamma():
        one_((width // 64, 8), 128, clean, cleanx, rc, parts, rows)
        two_(width // 32, 256, parts, dw)

    gamma()
    torch.cuda.synchronize()
    res(f"{tag} dgamma: differing {cmp(dw, dw2)} of {width}")
    wide = [[torch.randn(rows, width, device="cuda").to(BF) for _ in range(6)] for _ in range(4)]  # rotated, so that L2 does not help
    turn = [0]

    def rotate():
        turn[0] = (turn[0] + 1) % 4
        return wide[turn[0]]

    def report_time(what, mine, theirs, tensors):
        bytes_ = tensors * rows * width * 2
        a, b = graph_ms(mine, 8, 10), graph_ms(theirs, 8, 10)
        res(f"{tag} {what}: {a * 1e3:.1f} us ({bytes_ / a / 1e9:.2f} TB/s) against ATen {b * 1e3:.1f} us")

    def f1():
        p = rotate()
        forward(rows, 128, p[0], p[1], w, p[2], p[3], rstd, 1e-5)

    def t1():
        p = rotate()
        torch.ops.aten._fused_rms_norm(torch.add(p[0], p[1]), [width], w, 1e-5)

    def f2():
        p = rotate()
        fused(rows, 128, p[0], p[1], p[2], rc, w, p[3], p[4], p[5])

    def t2():
        p = rotate()
        a, _ = torch.ops.aten._fused_rms_norm_backward(torch.add(p[0], p[1]), p[2], [width], rc, w, [True, False])
        torch.add(p[3], a)

    def f3():
        p = rotate()
        one_((width // 64, 8), 128, p[0], p[1], rc, parts, rows)
        two_(width // 32, 256, parts, dw)

    def t3():
        p = rotate()
        torch.ops.aten._fused_rms_norm_backward(p[0], p[1], [width], rc, w, [False, True])

    report_time("forward add+norm", f1, t1, 4)
    report_time("dx with two adds", f2, t2, 6)
    try:
        report_time("dgamma", f3, t3, 2)
    except Exception as error:
        res(f"{tag} dgamma alone: {error}")
    both = graph_ms(lambda: torch.ops.aten._fused_rms_norm_backward(*wide[0][:2], [width], rc, w, [True, True]), 8, 10)
    res(f"{tag} ATen's backward, both results: {both * 1e3:.1f} us")
    for ahead in (2, 8):
        other = Module(read("norm.cu"), EXACT + (f"-DD={width}", f"-DAHEAD={ahead}"))
        k = other.kernel("gamma_parts")

        def f4():
            p = rotate()
            k((width // 64, 8), 128, p[0], p[1], rc, parts, rows)

        a = graph_ms(f4, 8, 10)
        res(f"{tag} gamma_parts with {ahead} groups ahead: {a * 1e3:.1f} us ({2 * rows * width * 2 / a / 1e9:.2f} TB/s)")


def run():
    torch.manual_seed(4)
    for rows, width in ((16384, 2048), (8192, 768)):
        one(rows, width)


main(run)
