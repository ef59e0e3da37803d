"""The sync client: the async one, driven from a loop on a thread of its own.

Right in threads, in notebooks (where a loop already runs) and in forked workers.
"""

from collections.abc import Mapping
from typing import Any, Self, Unpack

from failsoft.config.settings import Settings
from failsoft.errors import ClientClosedError
from failsoft.fallback.async_client import AsyncClient
from failsoft.fallback.background_loop import BackgroundLoop
from failsoft.fallback.call import Kind
from failsoft.fallback.core import Backends
from failsoft.fallback.ladder import Ladder
from failsoft.fallback.open_core import SettingsSource, read_source
from failsoft.fallback.reply import Reply
from failsoft.fallback.request_face import CallOptions, Messages, Prompt, split
from failsoft.fallback.surroundings import Surroundings
from failsoft.fallback.sync_stream import SyncReplyStream


class Client:
    """Answers through a ladder: always something, and always said what.

    Any thread may use it. Use it as a context manager, or call `close` at the end.

    Args:
        settings: Path of a ``failsoft.toml``, or settings.
        backends: Where records and kept replies go; None opens the settings' store.
        environ: Where API keys and ``FAILSOFT_HOME`` are; None takes the process's.
        surroundings: Clocks, chance and sleep; None takes the real ones.

    Raises:
        ConfigError: The settings are wrong, or an API key's variable is not set.
        StoreError: The store cannot be opened.
    """

    def __init__(
        self,
        settings: SettingsSource,
        *,
        backends: Backends | None = None,
        environ: Mapping[str, str] | None = None,
        surroundings: Surroundings | None = None,
    ) -> None:
        self._client = AsyncClient(
            settings, backends=backends, environ=environ, surroundings=surroundings
        )
        self._loop = BackgroundLoop()

    @property
    def ladders(self) -> Mapping[str, Ladder]:
        """The ladders by name, with their rungs' standing; to look at, not to change."""
        return self._client.ladders

    def reload(self, settings: SettingsSource) -> None:
        """Answer new calls by *settings*; see `AsyncClient.reload`.

        Raises:
            ConfigError: The settings are wrong, name another store, or an API key's variable is
                not set; the old settings stay.
        """
        self._loop.run(self._reload(read_source(settings)))

    async def _reload(self, settings: Settings) -> None:
        self._client.reload(settings)

    def chat(self, messages: Messages, **arguments: Any) -> Reply:
        """Return the whole reply to a chat.

        Args:
            messages: OpenAI-shaped messages, at least one.
            **arguments: `CallOptions` (``ladder``, ``deadline_s``, ``tenant``,
                ``idempotency_key``, ``cache``, ``fallback``); anything else goes into the
                request as it is (``temperature``, ``max_tokens``, ``tools``, …).

        Raises:
            InvalidCallError: An argument is out of range.
            CallRefusedError: An endpoint says it is the caller's fault.
            LadderExhaustedError: No rung could answer; it carries every attempt.
            IdempotencyConflictError: The key was used with another body.
            IdempotencyRunningError: The key's first call still runs.
            ClientClosedError: The client was closed.
        """
        options, fields = split(arguments)
        return self.ask({"messages": list(messages), **fields}, **options)

    def complete(self, prompt: Prompt, **arguments: Any) -> Reply:
        """Return the whole completion of *prompt*; everything else as in `chat`."""
        options, fields = split(arguments)
        return self.ask({"prompt": prompt, **fields}, kind="completion", **options)

    def stream(self, messages: Messages, **arguments: Any) -> SyncReplyStream:
        """Return the deltas of a chat's reply; arguments as in `chat`.

        Iterating raises what `chat` raises before the first delta, and
        StreamInterruptedError after it. `SyncReplyStream.reply` is there at the end.
        """
        options, fields = split(arguments)
        return self.ask_stream({"messages": list(messages), **fields}, **options)

    def ask(
        self, body: Mapping[str, Any], *, kind: Kind = "chat", **options: Unpack[CallOptions]
    ) -> Reply:
        """Return the whole reply to an OpenAI-shaped request; raises as `chat` does.

        Args:
            body: The request; ``model``, ``stream`` and ``stream_options`` are the ladder's.
            kind: ``"chat"`` or ``"completion"``.
            **options: See `CallOptions`.
        """
        return self._loop.run(self._client.ask(body, kind=kind, **options))

    def ask_stream(
        self, body: Mapping[str, Any], *, kind: Kind = "chat", **options: Unpack[CallOptions]
    ) -> SyncReplyStream:
        """Return the stream of an OpenAI-shaped request; `SyncReplyStream.chunks` are OpenAI's.

        The usage chunk is among them when ``stream_options.include_usage`` asks for it.

        Raises:
            InvalidCallError: An argument is out of range.
            ClientClosedError: The client was closed.
        """
        if self._loop.is_closed:
            raise ClientClosedError
        stream = self._client.ask_stream(body, kind=kind, **options)
        return SyncReplyStream(stream, self._loop)

    def close(self) -> None:
        """Cancel what runs, close connections and the store; new calls are refused.

        Calls under way in other threads end by ClientClosedError.
        """
        self._loop.close(self._client.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
