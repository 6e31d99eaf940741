"""Types that every package may import: drafts, the backend and tokenizer protocols, and the errors shown to users.

Knows token ids and numpy. Must not know any other package or a model library.
"""
