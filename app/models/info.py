"""`slipstream models info`: a model's facts in words. Reads headers; loads no model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from app.models.prospects import Machine, this_machine
from app.terminal import gigabytes, large, print_json, print_text, rate
from runtime.core.errors import ModelError
from runtime.engine.paired import last_verdict
from runtime.loading.cache_types import prefers_halves
from runtime.loading.profile_cache import measured
from runtime.models.adapters import is_adapter, told
from runtime.models.cache_layout import HALVES, USUAL_CACHE, CacheSpec, cache_bytes
from runtime.models.facts import ModelFacts
from runtime.models.header import Header, read_model_header
from runtime.models.heads import begins_for, n_words, wanted_by
from runtime.models.projector import is_projector, projector_near, read_projector
from runtime.models.registry import Pair, load_registry, local_pair
from runtime.training.conditions import why_never

USUAL, ONLY_HALVES = "Q8_0/F16", "F16"  # types of keys and values
CACHES = {USUAL: USUAL_CACHE, ONLY_HALVES: HALVES}
USES = {
    "embedding": "makes vectors of texts: `/v1/embeddings` of `slipstream serve`; writes no text",
    "reranking": "scores documents for a query: `/v1/rerank` of `slipstream serve`; writes no text",
}
Lines = list[tuple[str, str]]  # labels and sentences
CONTEXTS = 2048, 4096, 8192, 16384, 32768, 65536, 131072


def show(name: str, as_json: bool) -> None:
    """Print the target's facts, and those of its draft model if it has one; or those of an adapter or an encoder."""
    pair = local_pair(name, load_registry())
    header = read_model_header(pair.target)
    if is_adapter(header):
        entry, parts = adapter_facts(pair.target, header)
    elif is_projector(ModelFacts(header)):
        entry, parts = encoder_facts(pair.target)
    else:
        entry, parts = pair_facts(pair)
    if as_json:
        print_json(entry)
    else:
        print_text("\n\n".join(map(table, parts)))


def pair_facts(pair: Pair) -> tuple[dict[str, Any], list[Lines]]:
    """Return the facts of a pair as plain data and in words."""
    here = this_machine()
    files = {"target": pair.target} | ({"draft": pair.draft} if pair.draft else {})
    facts = {role: describe(path, ModelFacts(read_model_header(path)), here) for role, path in files.items()}
    facts["target"]["cache"] = ONLY_HALVES if prefers_halves(pair.target) else USUAL
    if eyes := pair.mmproj or projector_near(pair.target):
        facts["target"]["vision"] = describe_encoder(eyes)
    learns, search = learning(pair), last_verdict(pair.target)
    parts = [rows(entry) for entry in facts.values()] + ([[("learns", learns)]] if pair.learn else [])
    parts += [[("draft search", search)]] if search else []
    parts += [[("adapters", told(pair.lora) or "loaded, but off")]] if pair.lora else []
    return {"name": pair.name, **facts, "learns": learns, "draft_search": search}, parts


def adapter_facts(path: Path, header: Header) -> tuple[dict[str, Any], list[Lines]]:
    """Return the facts of a LoRA adapter, which is no model but used with one, as plain data and in words."""
    shapes = [tensor.shape for tensor in header.tensors if tensor.name.endswith(".lora_a")]
    ranks = sorted({min(shape) for shape in shapes})
    entry = {
        "path": str(path),
        "purpose": "adapter",
        "kind": header.text("adapter.type"),
        "architecture": header.text("general.architecture"),
        "base": header.text("general.base_model.0.name") or "not stated in the file",
        "file_bytes": header.n_file_bytes,
        "matrices": len(shapes),
        "ranks": ranks,
    }
    made_for = f"for models of the architecture {entry['architecture'] or 'unknown'}"
    lines = [
        ("file", f"{path}, {gigabytes(header.n_file_bytes)}"),
        ("adapter", f"{entry['kind'] or 'of no kind'}, {made_for}"),
        ("made for", str(entry["base"])),
        ("adapts", f"{len(shapes)} matrices, of rank {', '.join(map(str, ranks)) or 'unknown'}"),
        ("use", f"with its model: `slipstream run -m MODEL --lora {path}`"),
    ]
    return entry, [lines]


def encoder_facts(path: Path) -> tuple[dict[str, Any], list[Lines]]:
    """Return the facts of a vision encoder, which is no model but used with one, as plain data and in words. Raises
    ModelError.
    """
    found = read_projector(path)
    lines = [
        ("file", f"{path}, {gigabytes(found.facts.header.n_file_bytes)}"),
        ("vision encoder", f"{found.kind}, for models with embeddings of {found.width or 'unknown'} numbers"),
        ("memory", f"about {gigabytes(found.n_needed)}"),
        ("use", f"with its model: `slipstream run -m MODEL --mmproj {path} --image PICTURE`"),
    ]
    return describe_encoder(path) | {"purpose": "vision encoder", "width": found.width}, [lines]


def table(lines: Lines) -> str:
    """Return pairs of a label and a sentence as lines."""
    return "\n".join(f"{label:>16}  {text}" for label, text in lines)


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
        "purpose": "completion" if not facts.pooling.is_pooled else "reranking" if facts.pooling.ranks else "embedding",
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


def describe_encoder(path: Path) -> dict[str, Any]:
    """Return the facts of a vision encoder as plain data."""
    try:
        found = read_projector(path)
    except ModelError as error:
        return {"path": str(path), "problem": str(error)}
    return {"path": str(path), "kind": found.kind, "memory_bytes": found.n_needed}


def images_row(entry: dict[str, Any]) -> Lines:
    """Return the line about a model's vision encoder, if there is one."""
    if not (vision := entry.get("vision")):
        return []
    name = Path(vision["path"]).name
    text = vision.get("problem") or f"by {name} ({vision['kind']}), about {gigabytes(vision['memory_bytes'])}"
    return [("images", text)]


def rows(entry: dict[str, Any]) -> Lines:
    """Return the lines about a model as pairs of a label and a sentence."""
    experts = f", {entry['experts_used']} of {entry['experts']} experts per token" if entry["experts"] else ""
    kinds = ", ".join(f"{kind} {share:.0%}" for kind, share in entry["tensor_types"].items() if share >= 0.005)
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
    ]
    if use := USES.get(entry["purpose"]):
        return [*lines, ("use", use)]
    return [*lines, *writing_rows(entry), *memory_rows(entry)]


def writing_rows(entry: dict[str, Any]) -> Lines:
    """Return the lines about a model that writes text."""
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
        ("chat template", chat),
        *images_row(entry),
        ("fill in middle", "yes" if entry["fill_in_the_middle"] else "no"),
        ("early exit", early),
    ]
    if entry["drafts"]:
        lines.append(("drafts", entry["drafts"]))
    if entry["tokens_per_second"]:
        lines.append(("speed here", speed_here(entry)))
    return lines


def speed_here(entry: dict[str, Any]) -> str:
    """Return the speed of plain decode and the source of the number, in words."""
    told = f"{rate(entry['tokens_per_second'])} tok/s"
    if entry["speed_is_measured"]:
        return f"plain decode {told}, measured at its last start"
    return f"plain decode about {told}, estimated from memory bandwidth; measured at the first start"


def memory_rows(entry: dict[str, Any]) -> Lines:
    """Return the lines about the memory for weights and cache, by length of the context."""
    if not entry["parameters"]:
        return []
    names = ", in ".join(f"{name} (as used here)" if name == entry.get("cache", USUAL) else name for name in CACHES)
    lines = [("memory", f"context, cache in {names}; weights included")]
    for n, sizes in entry["memory_bytes"].items():
        lines.append(("", f"{int(n):>7,}  " + "  ".join(f"{gigabytes(sizes[kind]):>9}" for kind in CACHES)))
    return lines
