"""Scripts that ask a running server through other people's clients.

Each runs in an environment of its own, so none imports failsoft; what it saw goes to
stdout, a JSON object a line. `benchmarks.api_clients` makes the environments and reads.
"""
