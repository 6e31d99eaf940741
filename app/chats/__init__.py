"""Chats on disk and as text. Knows what was said; knows no widgets and no models."""
