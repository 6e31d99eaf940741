"""What a head can still learn: replies in which it was wrong, the heads that were trained on them, and the process that
trains while nothing is asked.

Knows token ids, passes, files and the clock. Must not know a model library, how a head is trained, or text.
"""
