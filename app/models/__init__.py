"""`slipstream models`: what is on this machine, what can be had, what a file is, and what fits what."""
