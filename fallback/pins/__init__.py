"""Which version each slot runs, and how that came about."""
