"""The ops process: what an operator sees, on a port of its own."""
