"""One GET to a process of this machine, every way it can fail put into words.

Knows nothing of what the answer means. Units: seconds.
"""

from dataclasses import dataclass

import httpx2

from failsoft.dashboard.standing import Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Got:
    """An answer."""

    status: int
    text: str


class LocalHttp:
    """Asks processes of this machine; any thread.

    Args:
        limit_s: Seconds for connecting, and for each wait for a piece of the answer.
    """

    def __init__(self, *, limit_s: float) -> None:
        self._limit_s = limit_s
        self._client = httpx2.Client(
            timeout=limit_s,
            trust_env=False,  # a proxy has no business between two processes of one machine
            # A process that is back after a crash must not be asked on its predecessor's line.
            limits=httpx2.Limits(max_keepalive_connections=0),
        )

    def get(self, url: str, *, token: str | None) -> Got | Unknown:
        """Return the answer of *url*, whatever its status."""
        headers = {"authorization": f"Bearer {token}"} if token else {}
        try:
            response = self._client.get(url, headers=headers)
        except httpx2.TimeoutException:
            return Unknown(reason=f"it did not answer within {self._limit_s:g} s")
        except httpx2.ConnectError:
            return Unknown(reason="nobody listens at its address")
        except (httpx2.HTTPError, httpx2.InvalidURL) as exc:
            return Unknown(reason=f"the connection broke ({type(exc).__name__})")
        return Got(status=response.status_code, text=response.text)

    def close(self) -> None:
        """Close its connections."""
        self._client.close()
