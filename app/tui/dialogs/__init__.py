"""Screens over the chat: lists, text input, pages to read, the Why screen.

Each receives its content and returns the choice. Know the store where they list chats; know neither the chat screen nor
the engine.
"""
