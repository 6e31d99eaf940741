"""Screens over the chat: lists, texts to write, pages to read, the Why screen.

Each is given what it shows and returns what was chosen. Know the store where they list chats; know neither the chat
screen nor the engine.
"""
