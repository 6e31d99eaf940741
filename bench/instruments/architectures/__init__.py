"""Tiny random models of many families, each with the metadata, tensors and kind of vocabulary that its real ones have.

They say nothing, but every layer counts in what they say. Knows files; what is to be true of the models is for tests.
"""
