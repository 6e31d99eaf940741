"""Tiny random models of many families, with the metadata, tensors and kind of vocabulary of the real ones.

Their text is meaningless, but every layer affects it. Knows files; the tests define the expected properties.
"""
