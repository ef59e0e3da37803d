"""Chat templates that failsoft brings for models that have none; Jinja text and stop strings.

Knows nothing of tokenizers. A base model continues text, so its template writes a
dialogue as plain text and stops where the user's next turn would begin.
"""

from typing import NamedTuple


class ChatTemplate(NamedTuple):
    """Jinja text over ``messages`` and ``add_generation_prompt``, and what ends an answer."""

    text: str
    stop_strings: tuple[str, ...]


PLAIN = ChatTemplate(
    text=(
        "{{- bos_token -}}"
        "{%- for message in messages -%}"
        "{%- if message['role'] == 'system' -%}"
        "{{- message['content'] | trim + '\\n\\n' -}}"
        "{%- elif message['role'] == 'user' -%}"
        "{{- 'User: ' + message['content'] | trim + '\\n' -}}"
        "{%- elif message['role'] == 'assistant' -%}"
        "{{- 'Assistant: ' + message['content'] | trim + '\\n' -}}"
        "{%- else -%}"
        "{{- raise_exception('the plain template knows the roles system, user and assistant, not ' "
        "+ message['role']) -}}"
        "{%- endif -%}"
        "{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{- 'Assistant:' -}}{%- endif -%}"
    ),
    stop_strings=("\nUser:",),
)
"""``User: …`` and ``Assistant: …`` lines; no space after the last colon, since the
next word's token brings its own."""

BUILTIN = {"plain": PLAIN}
"""Templates a version may name."""
