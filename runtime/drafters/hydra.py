"""Drafts from Hydra heads (Ankner et al., arXiv 2402.05109): Medusa heads that also read the tokens drafted before.

Head i reads the target's last hidden state and the embeddings of the i + 1 tokens after it, the last i of which are
drafted. The prefix attention of Hydra++ is not supported.
"""

from __future__ import annotations

import numpy as np

from runtime.core.draft import Logits, Tokens
from runtime.drafters.head import BoundedHeadDrafter
from runtime.drafters.network import NetworkHead, NetworkShape, Rows, block_names, residual_block, silu
from runtime.drafters.registry import Cost, Needs, Registered

SKIP = "skip"  # the matrix that makes a head's long input as wide as a state


class HydraHeads(NetworkHead):
    """Each head: a block Sx + SiLU(Wx + b) of all its inputs, residual blocks, and an output matrix."""

    @staticmethod
    def tensors(shape: NetworkShape) -> dict[str, tuple[int, ...]]:
        """See `NetworkHead.tensors`."""
        found: dict[str, tuple[int, ...]] = {}
        for head in range(shape.n_heads):
            for layer in range(shape.n_layers):
                n_inputs = (head + 2) * shape.width if layer == 0 else shape.width
                for name in ("", SKIP) if layer == 0 else ("",):
                    matrix, bias = block_names(head, layer, name)
                    found |= {matrix: (shape.width, n_inputs), bias: (shape.width,)}
        return found

    def logits(self, states: Rows, tokens: Tokens) -> Logits:
        """Return the logits [words] of the head that reads the state and all tokens after it, or of the last one."""
        after = tokens[len(states) - 1 :]
        head = min(len(after), self.shape.n_heads) - 1
        x = np.concatenate([states[-1], self.words(after[: head + 1]).ravel()])
        matrix, bias = (self.weights[name] for name in block_names(head, 0))
        skip, skip_bias = (self.weights[name] for name in block_names(head, 0, SKIP))
        feature = skip @ x + skip_bias + silu(matrix @ x + bias)
        for layer in range(1, self.shape.n_layers):
            feature = residual_block(feature, *(self.weights[name] for name in block_names(head, layer)))
        return self.outputs(feature, head)


@Registered("hydra", Cost.PASS, Needs.HEAD, label="Hydra heads", place=7, file="Hydra heads", network=HydraHeads)
class HydraDrafter(BoundedHeadDrafter):
    """Heads whose backend returns the logits of the next token."""
