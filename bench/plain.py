"""Our plain decode loop against a bare loop over `llama_decode` and argmax, in one process.

Usage: `python -m bench.plain`. Both have the same context settings, threads and prompt, and are greedy. The loss is the
cost of our Python code.
"""

from __future__ import annotations

import argparse
import ctypes
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import llama_cpp.llama_cpp as lib
import numpy as np

from bench.instruments.shapes import SHAPES, write_random
from bench.instruments.timing import interleaved, ratios, report, spread
from bench.instruments.toy import one_step
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.loading.pass_timing import fastest_threads, pass_runner, thread_counts
from runtime.models.registry import load_registry
from runtime.sampling.sampler import Sampler
from runtime.sampling.settings import Sampling
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.costs import PassCosts
from runtime.speculative.decoder import Decoder
from runtime.speculative.target import TargetPasses

PROMPT = 0.25  # prompt length as a share of the reply length


def bare(backend: LlamaBackend, n_prompt: int, n_reply: int) -> float:
    """Return the tokens per second of the least Python that decodes greedily, on the backend's own context."""
    context, n_vocab = backend.handle, backend.n_vocab
    lib.llama_memory_clear(lib.llama_get_memory(context), True)
    tokens = (ctypes.c_int32 * n_prompt)(*range(n_prompt))
    lib.llama_decode(context, lib.llama_batch_get_one(tokens, n_prompt))
    one = (ctypes.c_int32 * 1)()
    began = time.perf_counter()
    for _ in range(n_reply):
        row = np.ctypeslib.as_array(lib.llama_get_logits_ith(context, -1), shape=(n_vocab,))
        one[0] = int(row.argmax())
        lib.llama_decode(context, lib.llama_batch_get_one(one, 1))
    return n_reply / (time.perf_counter() - began)


def ours(backend: LlamaBackend, n_prompt: int, n_reply: int) -> float:
    """Return the tokens per second of our loop without drafters."""
    lib.llama_memory_clear(lib.llama_get_memory(backend.handle), True)
    backend.seat.n_held = 0
    costs = PassCosts()
    costs.set(1, 1e-3)
    loop, sampler = Decoder(TargetPasses(backend), [], Controller(costs, {}, 8)), Sampler(Sampling(temperature=0))
    tokens = np.zeros(n_prompt + n_reply + 1, dtype=np.int32)
    tokens[:n_prompt] = range(n_prompt)
    backend.forward(tokens[:n_prompt])
    began = time.perf_counter()
    for n in range(n_reply):
        tokens[n_prompt + n] = one_step(loop, tokens[: n_prompt + n], sampler, n, n_reply + 1 - n).tokens[0]
    return n_reply / (time.perf_counter() - began)


def compare(path: Path, runs: int, n_reply: int) -> dict[str, list[float]]:
    """Return the rates of interleaved runs of both on one model."""
    n_prompt = max(1, round(n_reply * PROMPT))
    model = LlamaModel(path)
    backend = LlamaBackend(model, 512, n_batch=64)
    threads = fastest_threads(
        thread_counts(), lambda n: backend.set_threads(n, n), pass_runner(backend), 1, float("inf")
    )
    backend.set_threads(threads, threads)
    cases: dict[str, Callable[[], float]] = {
        "bare": lambda: bare(backend, n_prompt, n_reply),
        "ours": lambda: ours(backend, n_prompt, n_reply),
    }
    results = interleaved(cases, runs)
    backend.close()
    model.close()
    return results


def main() -> None:
    """Measure both models; goals: 0.97 on the 135M shape, 0.85 on the demo target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--tokens", type=int, default=128, help="of a reply")
    parser.add_argument("--shape", choices=SHAPES, default="135m", help="beside the demo target")
    args, rows, summary = parser.parse_args(), [], {}
    with tempfile.TemporaryDirectory() as folder:
        models = {
            f"{args.shape} shape, Q8_0": write_random(Path(folder) / "random.gguf", SHAPES[args.shape]),
            "demo target": load_registry()["demo"].target,
        }
        for name, path in models.items():
            results = compare(path, args.runs, args.tokens)
            ratio = ratios(results["ours"], results["bare"])
            rows.append([name, str(spread(results["bare"])), str(spread(results["ours"])), str(ratio)])
            summary[name] = round(ratio.median, 4)
    report("plain decode, tok/s", ["model", "bare llama_decode", "ours", "ratio"], rows, {"ratio": summary})


if __name__ == "__main__":
    main()
