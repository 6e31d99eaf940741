"""The models in a process of their own, so that nothing that befalls them takes the chat or the server down.

Knows the engine's door and processes; must not know what is done behind the door.
"""
