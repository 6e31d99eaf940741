"""`slipstream models`: what is here, what can be had, what a file is, and what fits what."""
