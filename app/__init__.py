"""People and protocols: the command line, and later the chat and the server. No model library, no token logic."""
