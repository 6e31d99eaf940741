"""Handles model files of the hub: names, the shared cache, fetching. Knows files and a network; opens no model."""
