"""The base of what is read out of a body: a bool is no integer, a number no string."""

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """Takes JSON's own types, ignores fields that it does not know, and is not changed."""

    model_config = ConfigDict(
        strict=True, extra="ignore", frozen=True, use_attribute_docstrings=True
    )
