"""Chats on disk and as text: the store, one branch, exports. Knows messages; knows no widgets and opens no model."""
