"""`slipstream models`: the models on this machine and on the hub, facts about a file, and pairing."""
