"""The drafters, one file each; heads that llama.cpp computes share head.py. Every drafter implements `propose` and
registers itself.

Knows token ids, and a draft model by the Backend contract. Must not know the controller, the verifier or llama.cpp.
"""
