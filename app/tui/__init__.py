"""The terminal chat.

`chat_screen` composes the widgets and routes messages, `actions` are what people can do, `widgets` are what is seen,
`dialogs` the screens above, `background` the threads beside, `desktop` this person's files and programs.
Knows the chats, the engine's door and the server; knows neither tokens' logits nor a model library.
"""
