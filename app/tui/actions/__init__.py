"""The chat's commands, by subject; `dispatch` finds the action of a command.

An action is a function of the chat screen: it reads the session and the branch, calls methods of widgets, and raises
SlipstreamError for an invalid request. Actions know the screen's public parts; no widget knows an action.
"""
