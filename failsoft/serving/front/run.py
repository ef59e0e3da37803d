"""Run one front in this process until a signal.

Knows nothing of the command line. Stamps are UTC epoch milliseconds.
"""

import gc
import os
import secrets
import signal
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from failsoft.config.front import FrontConfig
from failsoft.config.home import home_folder
from failsoft.config.schema import load_settings
from failsoft.engine.http.listen import base_url
from failsoft.fallback.async_client import AsyncClient
from failsoft.fallback.open_core import store_backends
from failsoft.run_state import FrontState, withdraw_front, write_front
from failsoft.serving.front.front import Front
from failsoft.serving.front.keyring import read_keyring
from failsoft.serving.front.metrics import FrontMetrics
from failsoft.serving.front.recorder import CountingRecorder
from failsoft.serving.front.reload import Reloader
from failsoft.serving.front.server import FrontServer
from failsoft.serving.front.unlike_file import UnlikeFile

_TOKEN_BYTES = 24


def run_front(
    path: Path,
    sock: socket.socket,
    *,
    config: FrontConfig,
    environ: Mapping[str, str],
    on_ready: Callable[[str], None],
    tell: Callable[[str], None],
) -> int:
    """Serve on *sock* by the settings in *path*; return the process's exit code.

    Call on the main thread: signals arrive there only.

    Args:
        path: The settings file; SIGHUP reads it again.
        sock: A bound socket; closed at the end.
        config: How it listens and stops.
        environ: Where keys and ``FAILSOFT_HOME`` are.
        on_ready: Given the base URL, ``/v1`` included, once calls are answered.
        tell: Told in one line what an operator should know.

    Raises:
        ConfigError: The settings are wrong, or a key's variable is not set.
        StoreError: The store cannot be opened.
    """
    # A SIGHUP that comes before there is a handler for it waits instead of killing us.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    front = _open_front(path, sock, config=config, environ=environ)
    reloader = Reloader(front, path, environ=environ, tell=tell)
    home = home_folder(environ)
    url = f"{base_url(sock)}/v1"

    def announce() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
        write_front(home, FrontState(pid=os.getpid(), url=url, token=front.token))
        gc.collect()
        gc.freeze()  # what is loaded stays: collections look at what calls make only
        on_ready(url)

    def tell_drain(num_open: int) -> None:
        tell(
            f"stopping: {num_open} open calls get {config.drain_s:g} s to finish; "
            "a second signal stops now"
        )

    server = FrontServer(front, on_hangup=reloader.ask, on_ready=announce, on_drain=tell_drain)
    try:
        server.run(sockets=[sock])
    finally:
        withdraw_front(home, os.getpid())
        sock.close()
    return server.exit_code


def _open_front(
    path: Path, sock: socket.socket, *, config: FrontConfig, environ: Mapping[str, str]
) -> Front:
    settings = load_settings(path)
    host = str(sock.getsockname()[0])
    keyring = read_keyring(settings, environ, host=host)
    metrics = FrontMetrics()
    backends, store = store_backends(settings, environ)
    recorder = CountingRecorder(
        backends.recorder, on_call=metrics.count_call, on_attempt=metrics.count_attempt
    )
    client = AsyncClient(settings, backends=replace(backends, recorder=recorder), environ=environ)
    now_ms = int(time.time() * 1000)
    return Front(
        config=config,
        host=host,
        client=client,
        recorder=recorder,
        metrics=metrics,
        keyring=keyring,
        token=secrets.token_hex(_TOKEN_BYTES),
        store_stats=store.stats,
        unlike_file=UnlikeFile(home_folder(environ), path, moved=client.moved_pin),
        started_at_ms=now_ms,
        settings_read_at_ms=now_ms,
    )
