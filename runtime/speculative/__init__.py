"""Speculative decoding: one step of the loop, the verification of drafts, and degradation when memory is short.

Knows drafters and backends by their protocols only. Must not know text, files, chat templates or llama.cpp.
"""
