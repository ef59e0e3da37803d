"""JSON without spaces, in ASCII; the encoder is made once and not for each text."""

import json

compact_json = json.JSONEncoder(separators=(",", ":")).encode
"""Return a value's JSON; NaN and infinity come as they are, for an endpoint may send them."""
