"""The command `slipstream`: options, exit codes, one-shot replies.

Imports slow modules only when a command needs them.
"""
