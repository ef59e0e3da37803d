"""failsoft keeps an LLM feature answering: an engine, and a client that steps down.

The public face. Parts load when first touched, so ``import failsoft`` and the
command line work without torch installed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from failsoft.engine.engine import Engine
    from failsoft.fallback.async_client import AsyncClient
    from failsoft.fallback.client import Client

__version__ = "0.1.0.dev0"

_LAZY = {
    "AsyncClient": "failsoft.fallback.async_client",
    "Client": "failsoft.fallback.client",
    "Engine": "failsoft.engine.engine",
}

__all__ = ["AsyncClient", "Client", "Engine", "__version__"]


def __getattr__(name: str) -> Any:
    """Import the part that defines *name* on first use (PEP 562)."""
    if name not in _LAZY:
        raise AttributeError(f"module 'failsoft' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
