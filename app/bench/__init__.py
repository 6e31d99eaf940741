"""`slipstream bench`: what speculation is worth with this pair on this machine.

Loads nothing until the command runs.
"""
