"""The sockets that servers listen on: taken early, before what serves on them is loaded.

Knows nothing of HTTP, and loads none of it.
"""

import socket

from failsoft.errors import ConfigError


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that holds *host* and *port* but does not listen yet.

    Binding before the model loads fails early; callers are refused until it listens.

    Raises:
        ConfigError: The port is taken, or the host is no address of this machine.
    """
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, proto)
    except OSError as exc:
        raise ConfigError(key="host", value=host, allowed=f"an address ({exc.strerror})") from exc
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError as exc:
        sock.close()
        raise ConfigError(
            key="port",
            value=port,
            allowed=f"a free port on {host} ({exc.strerror}); choose another with --port",
        ) from exc
    return sock


def base_url(sock: socket.socket) -> str:
    """Return the URL under which a bound socket is reached from this machine."""
    host, port = sock.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 compared, not bound
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
