"""Tokenizers small enough to build in a test, shaped like the real families."""

from functools import cache
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

TEMPLATE = (
    "{% for message in messages %}"
    "{% if message.role not in ['system', 'user', 'assistant'] %}"
    "{{ raise_exception('unknown role ' + message.role) }}{% endif %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""ChatML, as SmolLM2 and Qwen write it."""

SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

CORPUS = [
    "the quick brown fox jumps over the lazy dog, twice. The end.",
    "こんにちは世界。日本語のテキスト。",
    "naïve café — “quotes” … 👩‍👩‍👧 🎉🎉 emoji",
    "user assistant system\nUser: hello world\nAssistant: hello",
]


def token_id(tokenizer: Tokenizer, token: str) -> int:
    """The id of a token that is there."""
    found = tokenizer.token_to_id(token)
    if found is None:
        raise KeyError(token)
    return int(found)


@cache
def byte_level_tokenizer() -> Tokenizer:
    """GPT-2 style: every byte is a token, some bytes are merged, characters may be cut."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


@cache
def byte_fallback_tokenizer() -> Tokenizer:
    """Llama style: ``▁`` for a space, byte tokens for characters it does not know."""
    words = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    words += ["▁", *"abcdefghijklmnopqrstuvwxyz", "▁t", "he", "▁the", "▁a"]
    vocab = {word: index for index, word in enumerate(words)}
    merges = [("▁", "t"), ("h", "e"), ("▁t", "he"), ("▁", "a")]
    tokenizer = Tokenizer(
        models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return tokenizer


@cache
def chat_tokenizer() -> Any:
    """The byte-level tokenizer as transformers wraps it, with SmolLM2's special tokens."""
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=byte_level_tokenizer(),
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
        clean_up_tokenization_spaces=False,
    )
