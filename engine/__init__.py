"""A continuous-batching engine over any Hugging Face causal language model.

Importing this package loads no torch; ``failsoft.engine.engine`` does.
"""
