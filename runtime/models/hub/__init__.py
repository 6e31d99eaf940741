"""Model files of the hub: their names, the shared cache, fetching. Knows files and a network; opens no model."""
