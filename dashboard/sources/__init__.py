"""Where the picture comes from: the front, the engines and the store, each asked in one file."""
