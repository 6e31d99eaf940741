"""`slipstream bench`: measures the gain from speculation with this pair on this machine.

Loads nothing until the command runs.
"""
