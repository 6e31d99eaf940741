"""The bundled pair: its text, its training, its evaluation. Only `demo/*.gguf` is needed to run."""
