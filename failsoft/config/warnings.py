"""What a valid ``failsoft.toml`` will do that its writer may not expect."""

from collections.abc import Iterator, Mapping

from failsoft.config.settings import CACHE_RUNG, LadderConfig, Settings

_DAY_S = 86_400


def warnings_of(settings: Settings, environ: Mapping[str, str]) -> list[str]:
    """Return one line for each surprise; an empty list when there is none.

    Args:
        settings: Valid settings.
        environ: The environment the secrets would be read from.
    """
    return [
        *_unset_secrets(settings, environ),
        *(line for ladder in settings.ladders.values() for line in _of_ladder(settings, ladder)),
        *_unpriced(settings),
    ]


def _unset_secrets(settings: Settings, environ: Mapping[str, str]) -> Iterator[str]:
    named = {"store.password_env": settings.store.password_env}
    for name, endpoint in settings.endpoints.items():
        named[f"endpoints.{name}.api_key_env"] = endpoint.api_key_env
    named |= {f"keys.{name}": env for name, env in settings.keys.items()}
    for key, env in named.items():
        if env is not None and not environ.get(env):
            yield f"{key}: the environment variable {env} is not set here"


def _of_ladder(settings: Settings, ladder: LadderConfig) -> Iterator[str]:
    at = f"ladders.{ladder.name}"
    if not ladder.has_cache:
        return
    if not settings.serves_cache(ladder):
        yield f'{at}.rungs: the cached rung is off, because store.keep_text = "none"'
        return
    window_s = ladder.cache.ttl_s + ladder.cache.stale_if_error_s
    if window_s > settings.store.reply_days * _DAY_S:
        yield (
            f"{at}.cache: replies may answer for {window_s / _DAY_S:g} days but are deleted "
            f"after store.reply_days = {settings.store.reply_days:g}"
        )


def _unpriced(settings: Settings) -> Iterator[str]:
    used = {rung for ladder in settings.ladders.values() for rung in ladder.rungs}
    for name in sorted(used - {CACHE_RUNG}):
        endpoint = settings.endpoints[name]
        if settings.price_of(endpoint) is None:
            pinned = endpoint.pin and f"versions.{settings.pins[endpoint.pin]}.price"
            yield f"{pinned or f'endpoints.{name}.price'}: no price, so costs are unknown, not 0"
