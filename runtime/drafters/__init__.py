"""The ways to guess ahead, one file each; every one implements `propose` and registers itself.

Knows token ids, and a draft model by the Backend contract. Must not know the controller, the verifier or llama.cpp.
"""
