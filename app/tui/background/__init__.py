"""What runs beside the screen: pairs are opened, replies made, models fetched, editors answered.

Threads post messages and touch no widget; the widgets here are not seen, they own the threads and say what happens.
Knows the engine and the hub; knows no widget that is seen.
"""
