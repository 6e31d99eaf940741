"""The controller: which drafter proposes next and how many tokens, learned from acceptance and measured seconds.

Knows counts and times. Must not know models, token ids or the verification rule.
"""
