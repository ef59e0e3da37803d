"""From a constraint to the grammar that a request carries."""

from collections.abc import Mapping
from typing import Any

from failsoft.engine.http.output_format import FormatFields
from failsoft.engine.http.served import ServedModel
from failsoft.engine.http.tools import ToolFields
from failsoft.engine.structured.constraint import Constraint
from failsoft.engine.structured.grammar import Grammar
from failsoft.errors import InvalidRequestError

_FIELDS = (*FormatFields.model_fields, *ToolFields.model_fields)


def may_need_grammar(raw: Mapping[str, Any]) -> bool:
    """Whether a body, not checked yet, may need one: compiling it may take long."""
    return any(raw.get(name) is not None for name in _FIELDS)


def grammar_of(constraint: Constraint | None, served: ServedModel) -> Grammar | None:
    """Return the grammar of *constraint*; blocks while it is compiled.

    Raises:
        InvalidRequestError: It cannot be followed, or no grammar can by this model.
    """
    if constraint is None:
        return None
    if served.compiler is None:
        raise InvalidRequestError(
            f"{served.name} cannot be made to follow {constraint.param}: the bytes of its tokens "
            "are not known; leave it out, or ask another model",
            param=constraint.param,
            code="unsupported_parameter",
        )
    return served.compiler.compile(constraint)
