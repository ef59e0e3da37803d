"""Tools and calls in a chat's past, for templates that know them and for others."""

import pytest

from failsoft.engine.models.templates import PLAIN
from failsoft.engine.text.tool_turns import ToolCall, Turn, knows_tools, written_out

TOOL = {"type": "function", "function": {"name": "now", "parameters": {}}}
CALL = ToolCall(call_id="1", name="now", arguments='{"zone": "UTC"}')
WRITTEN = '<tool_call>\n{"name": "now", "arguments": {"zone": "UTC"}}\n</tool_call>'


@pytest.mark.parametrize(
    ("template", "knows"),
    [
        ("{% if tools %}{{ tools | tojson }}{% endif %}", True),
        ("{% for tool in tools %}{{ tool }}{% endfor %}", True),
        ("{% for message in messages %}tools: {{ message.content }}{% endfor %}", False),
        ("{% set tools = [] %}{{ tools }}", False),
        ("{% generation %}{{ tools }}{% endgeneration %}", True),
        (PLAIN.text, False),
        ("", False),
    ],
)
def test_a_template_knows_tools_if_it_reads_the_variable(template: str, knows: bool) -> None:
    """A tag that only transformers knows is no reason to think that it does not."""
    assert knows_tools(template) is knows


def test_calls_and_results_become_plain_turns() -> None:
    """Results of one round share a turn: templates that alternate would refuse the second."""
    turns: list[Turn] = [
        {"role": "user", "content": "What time is it?"},
        {"role": "assistant", "content": "I look.", "tool_calls": [CALL.as_entry()] * 2},
        {"role": "tool", "content": "noon", "tool_call_id": "1"},
        {"role": "tool", "content": "12:00", "tool_call_id": "2"},
        {"role": "user", "content": "Sure?"},
    ]

    plain = written_out(turns, [])

    assert plain == [
        {"role": "user", "content": "What time is it?"},
        {"role": "assistant", "content": f"I look.\n{WRITTEN}\n{WRITTEN}"},
        {
            "role": "user",
            "content": "<tool_response>\nnoon\n</tool_response>\n"
            "<tool_response>\n12:00\n</tool_response>",
        },
        {"role": "user", "content": "Sure?"},
    ]


def test_tools_join_the_system_message_that_is_there() -> None:
    """One system message: many templates read the first alone."""
    [system, user] = written_out(
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}], [TOOL]
    )

    assert system["content"].startswith("Be brief.\n\n")
    assert '{"name": "now", "parameters": {}}' in system["content"]
    assert user == {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("arguments", "parsed"),
    [
        ('{"a": 1}', {"a": 1}),
        ("{", "{"),
        ("[" * 100_000, "[" * 100_000),
        ("[" * 50 + "]" * 50, "[" * 50 + "]" * 50),
    ],
)
def test_arguments_are_an_object_where_they_are_one(arguments: str, parsed: object) -> None:
    """A call that was cut is shown as it was."""
    assert ToolCall(call_id="1", name="f", arguments=arguments).parsed_arguments == parsed
