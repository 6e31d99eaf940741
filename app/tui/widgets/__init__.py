"""The visible parts of the chat screen, one widget per file.

A widget shows the arguments of its methods and posts what people do with it. Knows messages, text and stored numbers;
knows neither the engine, nor the session, nor another widget.
"""
