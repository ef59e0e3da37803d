"""Whose key is it: the callers of ``[keys]``.

Knows nothing of HTTP. A caller's name is its tenant.
"""

import hashlib
import hmac
from collections.abc import Mapping

from failsoft.config.http import is_loopback
from failsoft.config.secrets import read_secret
from failsoft.config.settings import Settings
from failsoft.errors import ConfigError


class Keyring:
    """Every caller's key, by name; an empty one lets everybody in, without a name.

    Args:
        keys: Name to key.
    """

    def __init__(self, keys: Mapping[str, str]) -> None:
        self._digests = tuple((name, _digest(key)) for name, key in keys.items())

    @property
    def is_empty(self) -> bool:
        """Whether nobody needs a key."""
        return not self._digests

    def name_of(self, key: str) -> str | None:
        """Return whose *key* is; empty when nobody needs one, None when it is nobody's.

        Takes the same time for every key: each is compared, in constant time and by its
        digest, so that not even its length shows.
        """
        if not self._digests:
            return ""
        given = _digest(key)
        found = None
        for name, digest in self._digests:
            if hmac.compare_digest(given, digest):
                found = name
        return found


def read_keyring(settings: Settings, environ: Mapping[str, str], *, host: str) -> Keyring:
    """Return the keys that *settings* name, as the environment has them.

    Args:
        settings: What ``[keys]`` says.
        environ: Where the keys are.
        host: Where the front listens.

    Raises:
        ConfigError: A key's variable is not set, two callers have the same key, or there is
            no key and *host* can be reached from other machines.
    """
    keys = {
        name: read_secret(variable, key=f"keys.{name}", environ=environ)
        for name, variable in settings.keys.items()
    }
    owners: dict[str, str] = {}
    for name, key in keys.items():
        if (other := owners.setdefault(key, name)) != name:
            raise ConfigError(
                key=f"keys.{name}",
                value=settings.keys[name],
                allowed=f"a variable with another key than {other} has: it says whose call it is",
            )
    if not keys and not is_loopback(host):
        raise ConfigError(
            key="host",
            value=host,
            allowed="a loopback address such as 127.0.0.1, unless [keys] names who may call",
        )
    return Keyring(keys)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
