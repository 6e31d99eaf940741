"""The HTTP server: an engine behind the interfaces of OpenAI, of Anthropic and of llama.cpp, each in a room of its own.

Knows HTTP and what the engine's door offers; must not know tokens' ways through the runtime, a terminal or a widget.
"""
