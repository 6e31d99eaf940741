"""What every package may import: drafts, the backend and tokenizer protocols, the errors shown to users, and how the
machine's memory and cores are read.

Knows token ids, numpy and the system. Must not know any other package or a model library.
"""
