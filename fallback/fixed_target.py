"""Where an endpoint that the settings give a URL is, with its key.

Knows nothing of local engines.
"""

import hashlib
from collections.abc import Mapping

from failsoft.config.secrets import read_secret
from failsoft.config.settings import EndpointConfig
from failsoft.errors import ConfigError
from failsoft.fallback.endpoint import Target, Version


def fixed_target(config: EndpointConfig, *, environ: Mapping[str, str]) -> Target:
    """Return where *config*, which has a URL, is.

    Args:
        config: What the settings say of it.
        environ: Where its API key is.

    Raises:
        ConfigError: The key's variable is not set, or holds no key.
    """
    assert config.url is not None
    assert config.model is not None
    secret = None
    if config.api_key_env is not None:
        key = f"endpoints.{config.name}.api_key_env"
        secret = read_secret(config.api_key_env, key=key, environ=environ)
        if not (secret.isascii() and secret.isprintable() and secret == secret.strip()):
            raise ConfigError(
                key=key,
                value=config.api_key_env,
                allowed="a variable that holds printable ASCII alone; often a line break or "
                "a space was copied with the key",
            )
    url = config.url.rstrip("/")
    where = hashlib.sha256(f"{url}\0{config.model}".encode()).hexdigest()
    return Target(
        url=url,
        model=config.model,
        version=Version(source=where, digest=None, price=config.price),
        authorization=f"Bearer {secret}" if secret else None,
    )
