"""The drafters, one file each: every drafter implements `propose` and registers itself.

Knows token ids, and a draft model by the Backend contract. Must not know the controller, the verifier or llama.cpp.
"""
