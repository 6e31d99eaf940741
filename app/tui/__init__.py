"""The terminal chat.

`chat` composes the widgets, `chat_screen` routes messages to the `actions`, which implement the commands; `widgets`
draw the chat screen, `dialogs` are the screens above it, and `background` runs the threads. Knows the chats, the public
engine API and the server; knows neither logits nor a model library.
"""
