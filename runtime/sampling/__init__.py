"""From a row of logits to a token: settings, the pipeline, Gumbel noise for seeds, grammar masks.

Knows logits and token ids, and serves target and draft model alike. Must not know where logits come from, or whether a
drafted token is accepted.
"""
