"""What people can do in the chat, by subject; `dispatch` finds the action for a command.

An action is a function on the chat screen: it reads the session and the branch, calls methods of widgets, and raises
SlipstreamError for what is wrong with it. Actions know the screen's public parts; no widget knows an action.
"""
