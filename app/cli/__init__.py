"""The command `slipstream`: options, exit codes, one-shot replies.

Imports nothing that takes long until a command needs it.
"""
