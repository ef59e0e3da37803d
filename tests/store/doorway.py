"""A TCP address that refuses connections until it is opened to a server behind it."""

import socket
import threading
from contextlib import suppress
from typing import Self


class Doorway:
    """Stands before a server on 127.0.0.1; shut at first.

    Args:
        port: Of the server behind it.
    """

    def __init__(self, port: int) -> None:
        self._behind = ("127.0.0.1", port)
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # ends a thread that accepts
        self._socket.close()

    def open(self) -> None:
        """Let connections through from now on."""
        self._socket.listen(16)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._join, args=(caller,), daemon=True).start()

    def _join(self, caller: socket.socket) -> None:
        with caller, socket.create_connection(self._behind) as server:
            back = threading.Thread(target=_pour, args=(server, caller), daemon=True)
            back.start()
            _pour(caller, server)
            back.join()


def _pour(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while data := one.recv(65_536):
            other.sendall(data)
    with suppress(OSError):
        other.shutdown(socket.SHUT_WR)
