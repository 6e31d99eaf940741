"""The terminal chat. Workers load and answer in threads and post messages; screens own widgets and state."""
