"""What continuous batching buys, measured: schedules side by side, and load over HTTP.

Everything a parent process or a load generator needs is free of torch; a model is loaded by
`failsoft.engine.bench.child` alone, in a process of its own for each mode.
"""
