"""The editor socket: the engine behind OpenAI's and llama.cpp's HTTP interfaces."""
