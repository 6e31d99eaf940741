"""llama.cpp's interfaces: completion and infill for editors, tokens, the chat template, server properties, slots.

Knows requests and responses; must not know how an endpoint is reached.
"""
