"""Formats a model's conversations: its chat template, prompts as token ids, its form of tool calls.

Knows messages, text and a vocabulary's ids; knows no loaded model, no drafter and no reply in progress.
"""
