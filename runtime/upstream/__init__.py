"""Another server's model as an engine: what is asked goes over HTTP as OpenAI's interface has it, and comes back as
chunks.

Knows the engine's door and other servers. Must not know a model library, a terminal or our own server.
"""
