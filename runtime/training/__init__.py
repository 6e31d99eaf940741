"""Makes and trains drafts on this machine: copies with fewer words; heads or a small draft model that learn from a
target's own replies, at a command or from rejected drafts while the machine is idle.

The only room that knows torch, which is imported when training begins and nowhere else (extra `train`): an engine uses
`background` and `conditions`, which load none. Knows backends, passes and files; must not know engines.
"""
