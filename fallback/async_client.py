"""The async client: what an app on an event loop calls.

May be used from several event loops and in forked children: each loop gets its
own connections, each process its own breakers.
"""

from collections.abc import Callable, Mapping
from typing import Any, Self, Unpack

from failsoft.fallback.call import Kind
from failsoft.fallback.core import Backends
from failsoft.fallback.ladder import Ladder
from failsoft.fallback.open_core import SettingsSource, open_core, read_source
from failsoft.fallback.reply import Reply
from failsoft.fallback.request_face import (
    CallOptions,
    Messages,
    Prompt,
    make_request,
    split,
    wants_usage,
)
from failsoft.fallback.stream import ReplyStream
from failsoft.fallback.surroundings import Surroundings
from failsoft.fallback.transport import HTTPTransport, Transport
from failsoft.pin_records import PinnedVersion

LEARN_S = 0.25
"""What learning of moved pins may take."""


class AsyncClient:
    """`Client` for an event loop: the same methods, to ``await`` or to iterate over.

    Use it as an async context manager, or call `aclose` at the end.

    Args:
        settings: See `Client`.
        backends: See `Client`.
        environ: See `Client`.
        surroundings: See `Client`.
        make_transport: Makes what sends the requests of one event loop.

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
        make_transport: Callable[[], Transport] = HTTPTransport,
    ) -> None:
        self._core = open_core(
            settings,
            backends=backends,
            environ=environ,
            surroundings=surroundings,
            make_transport=make_transport,
        )

    @property
    def ladders(self) -> Mapping[str, Ladder]:
        """The ladders by name, with their rungs' standing; to look at, not to change."""
        return self._core.ladders

    def reload(self, settings: SettingsSource) -> None:
        """Answer new calls by *settings*; calls under way end by those they began with.

        Call it on the client's event loop. An endpoint that stays what it was keeps its breaker.

        Raises:
            ConfigError: The settings are wrong, name another store, or an API key's variable is
                not set; the old settings stay.
        """
        self._core.reload(read_source(settings))

    async def learn_pins(self) -> None:
        """Learn of pins that were moved a moment ago; what `ladders` say of versions is then true.

        Calls need none of this. Waits for the store a quarter of a second at most.
        """
        await self._core.book.freshen(timeout_s=LEARN_S)

    def moved_pin(self, slot: str) -> PinnedVersion | None:
        """Return what a move pinned *slot* to, as last known; None when the settings decide."""
        return self._core.book.moved(slot)

    async def chat(self, messages: Messages, **arguments: Any) -> Reply:
        """Return the whole reply to a chat; arguments and errors as in `Client.chat`."""
        options, fields = split(arguments)
        return await self.ask({"messages": list(messages), **fields}, **options)

    async def complete(self, prompt: Prompt, **arguments: Any) -> Reply:
        """Return the whole completion of *prompt*; everything else as in `chat`."""
        options, fields = split(arguments)
        return await self.ask({"prompt": prompt, **fields}, kind="completion", **options)

    def stream(self, messages: Messages, **arguments: Any) -> ReplyStream:
        """Return the deltas of a chat's reply; arguments and errors as in `Client.stream`."""
        options, fields = split(arguments)
        return self.ask_stream({"messages": list(messages), **fields}, **options)

    async def ask(
        self, body: Mapping[str, Any], *, kind: Kind = "chat", **options: Unpack[CallOptions]
    ) -> Reply:
        """Return the whole reply to an OpenAI-shaped request; see `Client.ask`."""
        return await self._core.ask(
            make_request(self._core, kind, body, is_stream=False, **options)
        )

    def ask_stream(
        self, body: Mapping[str, Any], *, kind: Kind = "chat", **options: Unpack[CallOptions]
    ) -> ReplyStream:
        """Return the stream of an OpenAI-shaped request; see `Client.ask_stream`."""
        request = make_request(self._core, kind, body, is_stream=True, **options)
        return ReplyStream(self._core, request, with_usage=wants_usage(body))

    async def aclose(self) -> None:
        """Close this loop's connections and the store; new calls are refused.

        Calls under way break off; their rows are written.
        """
        await self._core.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()
