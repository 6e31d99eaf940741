"""Trains drafts on this machine: an EAGLE-3 head or a small draft model that learns from a target's own replies.

The only room that knows torch, which is imported when training begins and nowhere else (extra `train`). Knows engines,
backends and files; prompts nobody and prints nothing.
"""
