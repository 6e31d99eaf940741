"""Turns a row of logits into a token: settings, the pipeline, Gumbel noise for seeds, grammar masks.

Knows logits and token ids, and serves target and draft model alike. Must not know the source of logits, or whether a
drafted token is accepted.
"""
