"""What is seen of the chat screen, one widget per file.

A widget shows what its methods are given and posts what people do with it. Knows messages, text and numbers as they
are kept; knows neither the engine, nor the session, nor another widget.
"""
