"""`failsoft up`: starts front, ops and engines, watches them, restarts what dies."""
