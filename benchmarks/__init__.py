"""What the README's figures come from, and the proofs that CI repeats in short.

Each module runs as ``python -m benchmarks.NAME``. Speed is always a ratio of two
measurements of one run; absolute figures move from machine to machine.
"""
