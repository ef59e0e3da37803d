"""JSON that came over the wire: parsed, or refused by one error whatever is wrong with it.

Knows nothing of replies. Python's parser recurses, so a text of brackets alone makes it
raise RecursionError; a number of many digits makes it raise ValueError.
"""

import json
from typing import Any


def parse_json(raw: bytes | bytearray | str) -> Any:
    """Return the value of *raw*.

    Raises:
        ValueError: It is no JSON, or nested deeper than anybody means.
    """
    try:
        return json.loads(raw)
    except RecursionError as exc:
        raise ValueError("JSON nested too deeply") from exc
