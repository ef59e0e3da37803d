"""Secrets come from the environment only, at the moment they are needed."""

from collections.abc import Mapping

from failsoft.errors import ConfigError


def read_secret(env_name: str, *, key: str, environ: Mapping[str, str]) -> str:
    """Return the secret that *env_name* holds.

    Args:
        env_name: The environment variable.
        key: The setting that names it, for the error.
        environ: Usually ``os.environ``.

    Raises:
        ConfigError: The variable is unset or empty; the error shows its name only.
    """
    value = environ.get(env_name, "")
    if not value:
        raise ConfigError(
            key=key, value=env_name, allowed="a variable that is set: export it and start again"
        )
    return value
