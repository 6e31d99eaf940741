"""`slipstream models info`: a model's facts in words. Reads headers; loads no model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from app.terminal import inert
from runtime.learning.conditions import why_never
from runtime.models.cache_layout import HALVES, USUAL_CACHE, CacheSpec, cache_bytes
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.heads import begins_for, n_words, wanted_by
from runtime.models.registry import Pair, load_registry, local_pair
from runtime.tools import machine
from runtime.tools.paired import last_verdict

CACHES = {"Q8_0/F16": USUAL_CACHE, "F16": HALVES}  # types of keys and values; the first are those used here
CONTEXTS = 2048, 4096, 8192, 16384, 32768, 65536, 131072


def show(name: str, as_json: bool) -> None:
    """Prints the target, and the draft model of a pair that has one."""
    pair = local_pair(name, load_registry())
    bandwidth = machine.memory_bandwidth()
    files = {"target": pair.target} | ({"draft": pair.draft} if pair.draft else {})
    facts = {role: describe(path, ModelFacts(read_model_header(path)), bandwidth) for role, path in files.items()}
    learns, search = learning(pair), last_verdict(pair.target)
    if as_json:
        print(json.dumps({"name": pair.name, **facts, "learns": learns, "draft_search": search}, ensure_ascii=False))
        return
    parts = [rows(entry) for entry in facts.values()] + ([[("learns", learns)]] if pair.learn else [])
    parts += [[("draft search", search)]] if search else []
    print("\n\n".join("\n".join(f"{label:>16}  {inert(text)}" for label, text in part) for part in parts))


def learning(pair: Pair) -> str:
    """Is the pair's head trained further on replies, or why not?"""
    why = why_never(pair, begins_for(pair.draft) if pair.draft else "")
    return f"no: {why}" if why else "yes, while nothing is asked; `slipstream models learned` tells of it"


def describe(path: Path, facts: ModelFacts, bandwidth: float) -> dict[str, Any]:
    """The facts of a model as plain data."""
    contexts = sorted({n for n in CONTEXTS if n < facts.n_context} | {facts.n_context} - {0})
    return {
        "path": str(path),
        "name": facts.name,
        "architecture": facts.architecture,
        "licence": facts.licence,
        "parameters": facts.n_parameters,
        "file_bytes": facts.header.n_file_bytes,
        "bits_per_weight": round(facts.bits, 2),
        "tensor_types": {kind: round(share, 4) for kind, share in facts.kinds.items()},
        "layers": facts.n_layers,
        "experts_used": facts.n_experts[0],
        "experts": facts.n_experts[1],
        "vocabulary": n_words(facts),
        "context": facts.n_context,
        "chat_template": facts.has_template,
        "tools": facts.takes_tools,
        "fill_in_the_middle": facts.fills_gaps,
        "exit_layer": facts.exit_layer,
        "drafts": wanted_by(facts),
        "memory_bytes": {
            str(n): {
                name: facts.n_bytes_loaded + cache_bytes(facts, CacheSpec(n, types)) for name, types in CACHES.items()
            }
            for n in contexts
        },
        "bytes_per_token": facts.n_bytes_per_token,
        "tokens_per_second": round(bandwidth / facts.n_bytes_per_token, 2) if facts.n_bytes_per_token else 0.0,
    }


def rows(entry: dict[str, Any]) -> list[tuple[str, str]]:
    """What is printed of a model: pairs of a label and a sentence."""
    experts = f", {entry['experts_used']} of {entry['experts']} experts per token" if entry["experts"] else ""
    kinds = ", ".join(f"{kind} {share:.0%}" for kind, share in entry["tensor_types"].items() if share >= 0.005)
    chat = (
        ("yes, with tools" if entry["tools"] else "yes, without tools")
        if entry["chat_template"]
        else "none: use `--raw`"
    )
    early = (
        f"after layer {entry['exit_layer']} of {entry['layers']}, the file says"
        if entry["exit_layer"]
        else "the file says nothing of it"
    )
    lines = [
        ("file", f"{entry['path']}, {gigabytes(entry['file_bytes'])}"),
        ("model", f"{entry['name'] or 'without a name'} ({entry['architecture'] or 'unknown architecture'})"),
        ("licence", entry["licence"] or "the file names none"),
        ("parameters", f"{large(entry['parameters'])} in {entry['layers']} layers{experts}"),
        (
            "bits",
            f"{entry['bits_per_weight']:.2f} per weight ({kinds})" if kinds else "no weights: this is a vocabulary",
        ),
        ("vocabulary", f"{entry['vocabulary']:,} tokens"),
        ("context", f"{entry['context']:,} tokens as trained"),
        ("chat template", chat),
        ("fill in middle", "yes" if entry["fill_in_the_middle"] else "no"),
        ("early exit", early),
    ]
    if entry["drafts"]:
        lines.append(("drafts", entry["drafts"]))
    if entry["tokens_per_second"]:
        lines.append(
            (
                "speed here",
                f"plain decode at most about {rate(entry['tokens_per_second'])} tok/s, by the bandwidth of the memory",
            )
        )
    return lines + memory_rows(entry)


def memory_rows(entry: dict[str, Any]) -> list[tuple[str, str]]:
    """The memory that weights and cache take, by the length of the context."""
    if not entry["parameters"]:
        return []
    here, halves = CACHES
    lines = [("memory", f"context, cache in {here} (as used here), in {halves}; weights included")]
    for n, sizes in entry["memory_bytes"].items():
        lines.append(("", f"{int(n):>7,}  " + "  ".join(f"{gigabytes(sizes[kind]):>9}" for kind in CACHES)))
    return lines


def gigabytes(n: int) -> str:
    """A number of bytes in GB or MB, rounded to what matters."""
    return f"{n / 1e9:.2f} GB" if n >= 1e8 else f"{n / 1e6:.1f} MB"


def large(n: int) -> str:
    """A number of parameters, in billions or millions."""
    return f"{n / 1e9:.2f} billion" if n >= 1e9 else f"{n / 1e6:.1f} million"


def rate(per_second: float) -> str:
    """A number of tokens per second, as exactly as an estimate can be."""
    return f"{per_second:,.0f}" if per_second >= 10 else f"{per_second:.1f}"
