"""The reader that skips long arrays reads all else as the usual one does."""

from pathlib import Path

import gguf
import numpy as np
import pytest

from failsoft.engine.models.gguf_header import read_gguf_header, read_gguf_tokens
from failsoft.engine.models.gguf_quick import QuickReader, quick_gguf_reader

NUM_TOKENS = 5000
TOKENS = [f"token {index} ß" for index in range(NUM_TOKENS)]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a GGUF file with a long vocabulary and one tensor."""
    path = tmp_path_factory.mktemp("gguf") / "large.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_token_list(TOKENS)
    writer.add_token_scores([0.5] * NUM_TOKENS)
    writer.add_token_types([1] * NUM_TOKENS)
    writer.add_array("llama.layers", [1, 2, 3])
    writer.add_chat_template("{{ x }}")
    writer.add_tensor("token_embd.weight", np.arange(12, dtype=np.float32).reshape(3, 4))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_tensors_and_short_fields_are_the_usual_ones(large: Path) -> None:
    """Skipping moves nothing: what follows a long array is found at its place."""
    usual, quick = gguf.GGUFReader(large), QuickReader(large)

    assert [tensor.name for tensor in quick.tensors] == ["token_embd.weight"]
    assert np.array_equal(quick.tensors[0].data, usual.tensors[0].data)
    for name in ("llama.layers", "tokenizer.chat_template", "general.architecture"):
        assert quick.fields[name].contents() == usual.fields[name].contents()


def test_long_arrays_keep_their_length(large: Path) -> None:
    """The vocabulary's size comes from there when no field says it."""
    quick = QuickReader(large)

    names = ["tokens", "scores", "token_type"]
    assert [len(quick.fields[f"tokenizer.ggml.{name}"].data) for name in names] == [5000] * 3


def test_usual_reader_is_back_afterwards() -> None:
    """The exchange lasts for the block alone."""
    usual = gguf.GGUFReader

    with quick_gguf_reader():
        during: type = gguf.GGUFReader

    assert during is QuickReader
    assert gguf.GGUFReader is usual


def test_header_skips_arrays_and_reads_the_vocabulary_on_request(large: Path) -> None:
    """The header tells strings, numbers and tensor names."""
    header = read_gguf_header(large)

    assert header.architecture == "llama"
    assert header.chat_template == "{{ x }}"
    assert header.tensor_names == {"token_embd.weight"}
    assert header.strings == {}
    assert read_gguf_tokens(large) == TOKENS
