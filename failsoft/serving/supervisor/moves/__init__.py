"""Moves of pins, carried out: one engine takes the place of another, or nothing changes."""
