"""Drafts from EAGLE-1 and EAGLE-2 heads (Li et al., arXiv 2401.15077 and 2406.16858): one layer that continues states.

Each cell reads a last hidden state of the target and the embedding of the token after it, and computes the next state,
whose token the target's output matrix gives. Beyond the last pass, the head's own states replace the target's. It
attends to the latest WINDOW positions only, as earlier ones matter little (bench/results/heads.md). The draft is a
chain; EAGLE-2's trees pay only where many rows cost little more than one.
"""

from __future__ import annotations

import numpy as np

from runtime.core.draft import Logits, Tokens
from runtime.drafters.head import BoundedHeadDrafter
from runtime.drafters.network import AttentionShape, NetworkHead, NetworkShape, Rows, Weights, WordVectors, silu
from runtime.drafters.registry import Cost, Needs, Registered

WINDOW = 16


class EagleCells(NetworkHead):
    """Llama's layer without a norm before its attention, over a projection of an embedding and a state."""

    n_window, attends = WINDOW, True

    def __init__(self, shape: NetworkShape, weights: Weights, words: WordVectors) -> None:
        super().__init__(shape, weights, words)
        self._of = shape.attention or AttentionShape()
        self._states: Rows = np.zeros((0, shape.width), dtype=np.float32)
        self._tokens: Tokens = np.zeros(0, dtype=np.int32)

    @staticmethod
    def tensors(shape: NetworkShape) -> dict[str, tuple[int, ...]]:
        """See `NetworkHead.tensors`."""
        n, of = shape.width, shape.attention or AttentionShape()
        matrices = {
            "fc": (n, 2 * n), "attn_q": (of.n_heads * of.length, n), "attn_k": (of.n_kv * of.length, n),
            "attn_v": (of.n_kv * of.length, n), "attn_output": (n, of.n_heads * of.length), "ffn_gate": (of.ffn, n),
            "ffn_up": (of.ffn, n), "ffn_down": (n, of.ffn), "ffn_norm": (n,),
        }  # fmt: skip
        return {f"{name}.weight": size for name, size in matrices.items()} | {"fc.bias": (n,)}

    def logits(self, states: Rows, tokens: Tokens) -> Logits:
        """Return the logits [words] after all of `tokens`; cells of the call before are used again."""
        is_continued = np.array_equal(self._states, states) and np.array_equal(
            self._tokens, tokens[: len(self._tokens)]
        )
        if not is_continued:
            of = self._of
            self._keys, self._values = (np.zeros((0, of.n_kv, of.length), dtype=np.float32) for _ in range(2))
            self._states, self._tokens = states.copy(), tokens[:0]
        done = len(self._tokens)
        if done < len(states):
            self._extend(tokens[: len(states)], states)
            done = len(states)
        for token in tokens[done:]:
            self._extend(np.array([token], dtype=np.int32), self._feature[None])
        self._tokens = tokens.copy()
        return self.outputs(self._feature, 0)

    def _extend(self, tokens: Tokens, states: Rows) -> None:
        """Add cells of tokens [n] and the states before them [n, width], and compute the state after the last one."""
        w, of, first = self.weights, self._of, len(self._keys)
        x: Rows = np.hstack([self.words(tokens), states]) @ w["fc.weight"].T + w["fc.bias"]
        keys: Rows = (x @ w["attn_k.weight"].T).reshape(-1, of.n_kv, of.length)
        values: Rows = (x @ w["attn_v.weight"].T).reshape(-1, of.n_kv, of.length)
        turned = rotated(keys, first, of.rope_base)
        self._keys, self._values = np.concatenate([self._keys, turned]), np.concatenate([self._values, values])
        query: Rows = (w["attn_q.weight"] @ x[-1]).reshape(1, of.n_heads, of.length)
        query = rotated(query, first + len(x) - 1, of.rope_base)
        after = x[-1] + w["attn_output.weight"] @ attended(query[0], self._keys, self._values)
        y = after / np.sqrt(np.mean(after * after) + np.float32(of.norm_eps)) * w["ffn_norm.weight"]
        inner = silu(w["ffn_gate.weight"] @ y) * (w["ffn_up.weight"] @ y)
        self._feature: Rows = after + w["ffn_down.weight"] @ inner


def rotated(x: Rows, first: int, base: float) -> Rows:
    """Rotate the halves of x [n, heads, length] by positions from `first` on (Su et al., arXiv 2104.09864)."""
    half, positions = x.shape[-1] // 2, np.arange(first, first + len(x))
    angles = positions[:, None, None] * base ** (-np.arange(half) / half)
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def attended(query: Rows, keys: Rows, values: Rows) -> Rows:
    """Return what a query [heads, length] reads of keys and values [cells, kv heads, length]: [heads * length]."""
    grouped = query.reshape(keys.shape[1], -1, query.shape[-1])
    scores = grouped @ keys.transpose(1, 2, 0) / np.float32(query.shape[-1] ** 0.5)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    found: Rows = (weights / weights.sum(-1, keepdims=True) @ values.transpose(1, 0, 2)).ravel()
    return found


@Registered(
    "eagle1", Cost.PASS, Needs.HEAD, label="a trained head", place=7, file="an EAGLE-1 or EAGLE-2 head",
    network=EagleCells,
)  # fmt: skip
class EagleOneDrafter(BoundedHeadDrafter):
    """A head that continues the target's last hidden states."""
