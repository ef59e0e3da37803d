"""Structured output: grammars that a reply must follow, and tool calls written in them.

Knows no torch, no transformers and no HTTP.
"""
