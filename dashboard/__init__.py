"""What an operator sees: one picture of what runs, as a Flask page, as JSON, for the terminal.

Later: what changed, charts, and the rollback button.
"""
