"""Text in, token ids out, and back: chat template, incremental decoding, stop strings.

Knows nothing of models, torch or HTTP.
"""
