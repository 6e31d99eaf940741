"""User interfaces and protocols: the command line, the chat and the server. No model library, no token logic."""
