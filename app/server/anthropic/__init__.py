"""Anthropic's Messages: the interface of Claude Code and of other clients of that kind.

Knows requests and responses, and how they translate into a chat; must not know how an endpoint is reached.
"""
