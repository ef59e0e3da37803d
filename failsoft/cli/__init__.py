"""The ``failsoft`` command: one module a noun, results on stdout, all else on stderr."""
