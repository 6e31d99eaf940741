"""`slipstream forget`: removes everything learned from replies and prints how much that was."""

from __future__ import annotations

from app.cli.conversation import forget_last_run
from app.terminal import print_text
from runtime.engine import forget_replies
from runtime.learning.place import forget as forget_learned
from runtime.loading.prompt_cache import forget as forget_prompts
from runtime.tools.made_drafts import forget as forget_words


def run() -> None:
    """Remove everything learned from replies, and the conversation that `run --continue` continues."""
    forget_last_run()
    n_bytes, n_trimmed, n_learned, n_prompts = forget_replies(), forget_words(), forget_learned(), forget_prompts()
    if n_prompts:
        print_text(f"Removed the prompt cache: {n_prompts / 1e6:.1f} MB. Prompts are read again when needed.")
    if n_learned:
        print_text(
            f"Removed the heads that were trained on your replies, and their training data: {n_learned / 1e6:.1f} MB."
        )
    if n_trimmed:
        print_text(
            "Removed the draft models that were made from your replies, and their training data: "
            f"{n_trimmed / 1e6:.1f} MB. `slipstream models pair` and `distill` make them again."
        )
    print_text(
        f"Removed the past replies of every model: {n_bytes / 1024:.1f} KiB."
        if n_bytes
        else "There are no past replies to remove."
    )
