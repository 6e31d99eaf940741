"""`slipstream models info`: a model's facts in words. Reads headers; loads no model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from app.models.prospects import Machine, this_machine
from app.terminal import gigabytes, large, print_json, print_text, rate
from runtime.learning.conditions import why_never
from runtime.loading.profile_cache import measured
from runtime.models.cache_layout import HALVES, USUAL_CACHE, CacheSpec, cache_bytes
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.heads import begins_for, n_words, wanted_by
from runtime.models.registry import Pair, load_registry, local_pair
from runtime.tools.paired import last_verdict

CACHES = {"Q8_0/F16": USUAL_CACHE, "F16": HALVES}  # types of keys and values; the first is used here
CONTEXTS = 2048, 4096, 8192, 16384, 32768, 65536, 131072


def show(name: str, as_json: bool) -> None:
    """Print the target's facts, and those of its draft model if it has one."""
    pair = local_pair(name, load_registry())
    here = this_machine()
    files = {"target": pair.target} | ({"draft": pair.draft} if pair.draft else {})
    facts = {role: describe(path, ModelFacts(read_model_header(path)), here) for role, path in files.items()}
    learns, search = learning(pair), last_verdict(pair.target)
    if as_json:
        print_json({"name": pair.name, **facts, "learns": learns, "draft_search": search})
        return
    parts = [rows(entry) for entry in facts.values()] + ([[("learns", learns)]] if pair.learn else [])
    parts += [[("draft search", search)]] if search else []
    print_text("\n\n".join("\n".join(f"{label:>16}  {text}" for label, text in part) for part in parts))


def learning(pair: Pair) -> str:
    """Return whether the pair's head learns from replies, or why not, in words."""
    why = why_never(pair, begins_for(pair.draft) if pair.draft else "")
    return f"no: {why}" if why else "yes, while idle; see `slipstream models learned`"


def describe(path: Path, facts: ModelFacts, here: Machine) -> dict[str, Any]:
    """Return the facts of a model as plain data."""
    seconds = measured().get(path.absolute(), 0.0)
    estimate = here.step_seconds(facts.n_bytes_per_token, facts.n_layers)
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
        "tokens_per_second": round(1 / (seconds or estimate), 2) if seconds or estimate else 0.0,
        "speed_is_measured": bool(seconds),
    }


def rows(entry: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the lines about a model as pairs of a label and a sentence."""
    experts = f", {entry['experts_used']} of {entry['experts']} experts per token" if entry["experts"] else ""
    kinds = ", ".join(f"{kind} {share:.0%}" for kind, share in entry["tensor_types"].items() if share >= 0.005)
    chat = (
        ("yes, with tools" if entry["tools"] else "yes, without tools")
        if entry["chat_template"]
        else "none: use `--raw`"
    )
    early = (
        f"after layer {entry['exit_layer']} of {entry['layers']}, by the file"
        if entry["exit_layer"]
        else "not stated in the file"
    )
    lines = [
        ("file", f"{entry['path']}, {gigabytes(entry['file_bytes'])}"),
        ("model", f"{entry['name'] or 'unnamed'} ({entry['architecture'] or 'unknown architecture'})"),
        ("licence", entry["licence"] or "not stated in the file"),
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
        lines.append(("speed here", speed_here(entry)))
    return lines + memory_rows(entry)


def speed_here(entry: dict[str, Any]) -> str:
    """Return the speed of plain decode and the source of the number, in words."""
    told = f"{rate(entry['tokens_per_second'])} tok/s"
    if entry["speed_is_measured"]:
        return f"plain decode {told}, measured at its last start"
    return f"plain decode about {told}, estimated from memory bandwidth; measured at the first start"


def memory_rows(entry: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the lines about the memory for weights and cache, by length of the context."""
    if not entry["parameters"]:
        return []
    here, halves = CACHES
    lines = [("memory", f"context, cache in {here} (as used here), in {halves}; weights included")]
    for n, sizes in entry["memory_bytes"].items():
        lines.append(("", f"{int(n):>7,}  " + "  ".join(f"{gigabytes(sizes[kind]):>9}" for kind in CACHES)))
    return lines
