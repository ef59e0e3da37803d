"""Settings: one frozen dataclass per part, built once at the command line and passed whole."""
