"""The HTTP server: an engine behind the interfaces of OpenAI, Anthropic, llama.cpp and Ollama, one folder for each.

Knows HTTP and the engine's public interface; must not know how tokens pass through the runtime, a terminal or a widget.
"""
