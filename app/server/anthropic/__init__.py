"""Anthropic's Messages API, the interface of Claude Code and similar clients.

Knows requests and responses, and how they translate into a chat; must not know how an endpoint is reached.
"""
