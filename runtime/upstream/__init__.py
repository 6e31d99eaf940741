"""Another server's model as an engine: requests are sent over HTTP in OpenAI's interface, and replies become chunks.

Knows the engine's interface and other servers. Must not know a model library, a terminal or our own server.
"""
