"""The terminal chat.

`chat` composes the widgets, `chat_screen` routes messages to the `actions`, which implement the commands; `widgets`
draw the chat screen, `dialogs` are the screens above it. The widgets of this folder's own files are invisible and own
threads: `engine_host` with the engine, `downloads`, `editor_access`, `between_replies`. Knows the chats, the public
engine API and the server; knows neither logits nor a model library.
"""
