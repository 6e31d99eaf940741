"""OpenAI's interfaces: chat completions, completions, responses, embeddings and the list of models.

Knows requests and responses; must not know how an endpoint is reached.
"""
