"""Versions and the machine's two ceilings: copy rate and bf16 matmul."""
import subprocess

import torch

from nvk import main, ms, nvrtc_version, res


def run():
    res(subprocess.run("nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,power.draw,power.limit --format=csv,noheader",
                       shell=True, capture_output=True, text=True, timeout=20).stdout.strip())
    res(f"torch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}, NVRTC {nvrtc_version()}")
    x = torch.randn(1 << 30, device="cuda")
    y = torch.empty_like(x)
    t = ms(lambda: y.copy_(x))
    res(f"copy: {8 * 2**30 / t / 1e9:.2f} TB/s")
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    t = ms(lambda: torch.mm(a, b), 30, 5)
    res(f"bf16 8192^3: {2 * 8192**3 / t / 1e9:.0f} TFLOP/s")


main(run)
