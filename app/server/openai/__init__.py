"""OpenAI's interfaces: chat completions, completions, responses and embeddings.

Knows requests and replies; serves none itself.
"""
