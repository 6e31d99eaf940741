"""The chat's access to this person's machine: attached files, templates, the keymap, the clipboard, an editor.

Knows files and processes; knows no widgets, no chats and no models.
"""
