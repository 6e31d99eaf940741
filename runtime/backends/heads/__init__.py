"""What drafts from the target's own states: heads that llama.cpp or NumPy computes, and the target's first layers.

Knows the target's context, whose passes it follows. Must not know drafters' classes or the purpose of a pass.
"""
