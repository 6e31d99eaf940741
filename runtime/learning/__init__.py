"""Further training of a head: replies in which it was wrong, heads trained on them, and the idle-time training process.

Knows token ids, passes, files and the clock. Must not know a model library, how a head is trained, or text.
"""
