"""Tiny models of every family that is claimed to run."""
