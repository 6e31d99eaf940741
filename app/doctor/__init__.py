"""`slipstream doctor`: what this machine can do, what is wrong with it, and how to fix that."""
