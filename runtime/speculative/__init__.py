"""Speculative decoding: one step of the loop, the verifier that accepts or rejects drafts, and what is given up when
memory is short.

Knows drafters and backends by their contracts only. Must not know text, files, chat templates or llama.cpp.
"""
