"""The terminal chat.

`chat_screen` composes the widgets and routes messages, `actions` implement the commands, `widgets` draw the chat
screen, `dialogs` are the screens above it, `background` runs the threads, and `desktop` uses the local files and
programs. Knows the chats, the public engine API and the server; knows neither logits nor a model library.
"""
