"""What runs a model. Each file knows one library; the rest of the engine knows only runtime/backend.py."""
