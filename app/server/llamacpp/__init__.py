"""llama.cpp's interfaces: completion and infill for editors, tokens, the chat template, the server's properties.

Knows requests and responses; must not know how an endpoint is reached.
"""
