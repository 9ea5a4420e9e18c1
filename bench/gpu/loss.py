"""Cross entropy forward and backward in one kernel, in place: bits compared with ATen's ops, and
ms."""
import torch

from nvk import EXACT, Module, cmp, differing, main, ms, read, report, res

BF = torch.bfloat16
aten = torch.ops.aten


def chain(logits, labels, upstream):
    """The ops of a captured step: cast, log_softmax, nll_loss (sum), its backward, log_softmax's
    backward, cast."""
    x = logits.float()
    logp = aten._log_softmax(x, 1, False)
    del x
    loss, weight = aten.nll_loss_forward(logp, labels, None, 2, -100)
    grad = aten.nll_loss_backward(upstream, logp, labels, None, 2, -100, weight)
    out = aten._log_softmax_backward_data(grad, logp, 1, torch.float32)
    return loss, logp, out


def one(rows, vocabulary, variants):
    tag = f"loss {rows}x{vocabulary}"
    source = (torch.randn(rows, vocabulary, device="cuda", dtype=BF) * 3)
    source[1] = 0
    source[2, 5] = 80.0
    source[3] *= 30
    source[4, 1:] = float("-inf")
    source[5, 7] = float("inf")
    source[6, 9] = float("nan")
    source[7] *= 1e-30
    labels = torch.randint(vocabulary, (rows,), device="cuda")
    labels[0] = vocabulary - 1
    labels[8] = 0
    labels[10:14] = -100
    upstream = torch.tensor(1.0 / (rows - 4), device="cuda")
    loss, logp, grad = chain(source, labels, upstream)
    expected = grad.to(BF)
    rowloss = torch.where(labels == -100, 0.0, -logp.gather(1, labels.clamp(min=0)[:, None]).flatten())
    del logp, grad
    torch.cuda.empty_cache()
    bytes_ = 2 * source.numel() * 2
    theirs = None
    for keep, clusters, reverse in variants:
        name = f"{tag} {'shared memory' if keep else 'L2'} cluster {clusters}{' reverse' if reverse else ''}"
        try:
            module = Module(read("loss.cu"), EXACT + (f"-DV={vocabulary}", f"-DC={clusters}", f"-DKEEP={keep}", f"-DREVERSE={reverse}"))
            threads = 1024 // clusters
            smem = (vocabulary // 4096 * threads * 8 + 4 * threads * 2) if keep else 0
            kernel = module.kernel("loss", smem)
            work, losses = source.clone(), torch.full((rows,), 7.0, device="cuda")
            kernel(rows * clusters, threads, work, labels, losses, upstream, -100)
            torch.cuda.synchronize()
            d = cmp(work, expected)
            value = ms(lambda: kernel(rows * clusters, threads, work, labels, losses, upstream, -100), 10, 2)
            kernel_losses = losses
            work.copy_(source)
            kernel(rows * clusters, threads, work, labels, losses, upstream, -100)
            torch.cuda.synchronize()
            res(f"{name}: differing gradient {d}, row losses {cmp(losses, rowloss)}; {value:.3f} ms "
                f"({bytes_ / value / 1e9:.2f} TB/s of read+write); {report(module.log)[0].split(';')[0]}")
            del work
        except Exception as error:
            res(f"{name}: FAILED {type(error).__name__} {str(error)[:200]}".replace("\n", " "))
    del expected
    torch.cuda.empty_cache()
    theirs = ms(lambda: chain(source, labels, upstream)[2].to(BF), 5, 1)
    res(f"{tag} ATen's chain: {theirs:.3f} ms")
    # Apart from NaNs and infinities in the first rows: does another order of summing the row losses
    # change the loss much?
    res(f"{tag} ATen's loss {float(loss)!r}")


def after_matmul(rows, vocabulary, width):
    """Runs the loss right after the matmul of the logits: does the reverse order hit the L2
    cache?"""
    x, w = torch.randn(rows, width, device="cuda", dtype=BF), torch.randn(vocabulary, width, device="cuda", dtype=BF) / width ** 0.5
    out = torch.empty(rows, vocabulary, device="cuda", dtype=BF)
    labels = torch.randint(vocabulary, (rows,), device="cuda")
    upstream, losses = torch.tensor(1.0 / rows, device="cuda"), torch.zeros(rows, device="cuda")
    alone = ms(lambda: torch.mm(x, w.t(), out=out), 10, 2)
    for reverse in (0, 1):
        module = Module(read("loss.cu"), EXACT + (f"-DV={vocabulary}", "-DC=1", "-DKEEP=0", f"-DREVERSE={reverse}"))
        kernel = module.kernel("loss")

        def both():
            torch.mm(x, w.t(), out=out)
            kernel(rows, 1024, out, labels, losses, upstream, -100)

        res(f"loss {rows}x{vocabulary} after its matmul, reverse={reverse}: {ms(both, 10, 2) - alone:.3f} ms on top of {alone:.3f}")


def run():
    torch.manual_seed(5)
    one(8192, 32000, [(0, 1, 0), (0, 1, 1), (1, 1, 0), (1, 2, 0), (1, 4, 0)])
    one(16384, 128256, [(0, 1, 0), (0, 1, 1), (0, 2, 0), (1, 2, 0), (1, 4, 0), (1, 8, 0)])
    after_matmul(8192, 32000, 768)
    after_matmul(16384, 128256, 2048)


main(run)
