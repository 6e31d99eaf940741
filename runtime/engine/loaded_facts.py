"""Collects the constant facts of a loaded pair."""

from __future__ import annotations

from runtime.conversation.prompt import NEEDED
from runtime.engine.engine import EngineFacts
from runtime.loading.loaded_pair import LoadedPair


def facts_of(loaded: LoadedPair) -> EngineFacts:
    """Return the constant facts of a loaded pair."""
    target, plan, off, lacking = loaded.target, loaded.plan, loaded.decoder.controller.off, loaded.left_out
    failed = lacking.text if lacking and lacking.code in ("cost", "draft-error") else ""
    left_out = "; ".join(text for text in (loaded.shortened, failed) if text)
    return EngineFacts(
        n_ctx=loaded.backend.n_ctx,
        n_ctx_train=target.n_ctx_train,
        n_vocab=target.vocab.n_vocab,
        n_embd=target.n_embd,
        n_bytes=target.size,
        template=target.template,
        fit=plan.text if plan else "",
        left_out=f"memory is short: {plan.text}" if plan and plan.is_less else left_out,
        is_short=bool(plan and plan.is_less),
        exactness=loaded.exactness,
        is_reproducible=loaded.exactness.is_exact or not loaded.options.fast,
        can_draft=not target.is_embedder and (off is None or off.code != "architecture"),
        could_be_exact=loaded.could_be_exact,
        has_gpu=loaded.is_elsewhere,
        can_infill=target.vocab.fim.keys() >= set(NEEDED),
        shares_passes=loaded.decoder.target.shared is not None,
        remark=lacking.text if lacking and lacking.code == "cost" else "",
    )
