"""Drafts from Medusa heads (Cai et al., arXiv 2401.10774): head i predicts the token i + 2 places after a state.

All heads read the same last hidden state of the target, so their tokens do not depend on one another. The draft is a
chain of the likeliest ones: the paper's tree of combinations pays only where many rows cost little more than one.
"""

from __future__ import annotations

from runtime.core.draft import Logits, Tokens
from runtime.drafters.head import BoundedHeadDrafter
from runtime.drafters.network import NetworkHead, NetworkShape, Rows, block_names, residual_block
from runtime.drafters.registry import Cost, Needs, Registered


class MedusaHeads(NetworkHead):
    """Each head: residual blocks x + SiLU(Wx + b), and an output matrix, which may be the target's."""

    @staticmethod
    def tensors(shape: NetworkShape) -> dict[str, tuple[int, ...]]:
        """See `NetworkHead.tensors`."""
        found: dict[str, tuple[int, ...]] = {}
        for head in range(shape.n_heads):
            for layer in range(shape.n_layers):
                matrix, bias = block_names(head, layer)
                found |= {matrix: (shape.width, shape.width), bias: (shape.width,)}
        return found

    def logits(self, states: Rows, tokens: Tokens) -> Logits:
        """Return the logits [words] of the head for that place, whatever the tokens before it are."""
        head = min(len(tokens) - len(states), self.shape.n_heads - 1)  # the target itself has computed the first token
        return self.outputs(self._feature(states[-1], head), head)

    def _feature(self, state: Rows, head: int) -> Rows:
        for layer in range(self.shape.n_layers):
            state = residual_block(state, *(self.weights[name] for name in block_names(head, layer)))
        return state


@Registered("medusa", Cost.PASS, Needs.HEAD, label="Medusa heads", place=7, file="Medusa heads", network=MedusaHeads)
class MedusaDrafter(BoundedHeadDrafter):
    """Heads of which each is computed only if the draft reaches its place."""
