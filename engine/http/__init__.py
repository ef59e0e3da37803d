"""The OpenAI-compatible face of one engine, over ASGI.

Knows nothing of torch or of how a model runs: it validates, tokenises, submits
to the engine and turns its events into JSON or server-sent events.
"""
