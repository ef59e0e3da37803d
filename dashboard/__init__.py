"""Flask pages: what broke, since when, what changed, and the rollback button."""
