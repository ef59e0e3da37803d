"""What an endpoint asks to wait."""

import pytest

from failsoft.fallback.retry_after import retry_after_s, should_retry

NOW_S = 1_700_000_000.0  # 2023-11-14 22:13:20 UTC


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:50 GMT"}, 30.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:50 -0000"}, 30.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:00:00 GMT"}, 0.0),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "whenever"}, None),
    ],
)
def test_the_three_forms_are_read(headers: dict[str, str], seconds: float | None) -> None:
    """Milliseconds win; nonsense is no wait."""
    assert retry_after_s(headers, now_s=NOW_S) == seconds


@pytest.mark.parametrize(
    ("text", "says"), [("true", True), (" False ", False), ("maybe", None), (None, None)]
)
def test_x_should_retry_is_read(text: str | None, says: bool | None) -> None:
    """Anything but true and false says nothing."""
    headers = {} if text is None else {"x-should-retry": text}

    assert should_retry(headers) is says
