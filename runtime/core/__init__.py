"""What every room may import: drafts, the contracts of backends and tokenizers, and the errors that people read.

Knows token ids and numpy. Must not know any other room, a model library, a file or a clock.
"""
