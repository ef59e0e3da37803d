"""What happened, kept in SQLite or PostgreSQL: calls, attempts, replies and events."""
