"""Merging a LoRA adapter into a linear layer, against adding its products in every call (docs/benchmarks.md).

python3 tests/bench/wan/lora_peer.py: for one linear layer, milliseconds of a merge and of what a call costs more
without one, and after how many calls the merge has paid for itself. One thread, F32, medians of 15 alternating runs.
"""
import statistics
import time

import torch

RANK = 32


def milliseconds(work):
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e3


def main():
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, rank {RANK}")
    for name, inner, outer, tokens in (("tiny", 128, 128, 48), ("mid", 512, 512, 1280), ("1.3B", 1536, 1536, 1560)):
        x, w = torch.randn(1, tokens, inner), torch.randn(outer, inner)
        a, b = torch.randn(RANK, inner), torch.randn(outer, RANK)
        bias = torch.randn(outer)
        times = {"merge": [], "plain": [], "added": []}
        with torch.inference_mode():
            for _ in range(15):
                times["merge"].append(milliseconds(lambda: w + (b @ a) * 0.7))
                times["plain"].append(milliseconds(lambda: torch.nn.functional.linear(x, w, bias)))
                times["added"].append(
                    milliseconds(lambda: torch.nn.functional.linear(x, w, bias).add_((x @ a.T) @ b.T, alpha=0.7)))
        merge, plain, added = (statistics.median(times[key]) for key in ("merge", "plain", "added"))
        print(f"{name}: merge {merge:.3f} ms; a call {plain:.3f} ms, with the products {added:.3f} ms; "
              f"paid after {merge / max(added - plain, 1e-9):.1f} calls")


if __name__ == "__main__":
    main()
