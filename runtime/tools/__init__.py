"""Programs that use an engine: finding a draft model for a target, making one, diagnosing a machine.

Knows the engine as the app does. Must not be imported by any other room.
"""
