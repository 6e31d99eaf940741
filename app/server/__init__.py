"""The HTTP server: an engine behind the interfaces of OpenAI, Anthropic, llama.cpp and Ollama, a room for each.

Knows HTTP and what the engine's door offers; must not know tokens' ways through the runtime, a terminal or a widget.
"""
