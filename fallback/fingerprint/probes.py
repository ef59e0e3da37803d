"""What a fingerprint asks: fixed texts to score and fixed questions, the same for every model.

They vary (prose, code, numbers, other scripts), for a change may spare one kind of text.
A change here makes every kept reference useless: `PROBES_ID` says which ones it is of.
"""

import hashlib
import json

TEXTS = (
    "When the river rose in spring, the miller's daughter carried the flour to the loft, "
    "counting aloud so that her father, who could no longer see, would know that nothing "
    "was lost.",
    "def merge(left, right):\n    out = []\n    while left and right:\n"
    "        side = left if left[0] <= right[0] else right\n        out.append(side.pop(0))\n",
    "Invoice 2026-0417: 3 x 19.95 = 59.85; shipping 4.90; VAT 19 % = 12.30; total 77.05 EUR.",
    "川は春に増水し、娘は粉の袋を運んだ。강물이 불었다. Der Müller zählt süße Brötchen.",
)
"""Scored as they stand: about 45 tokens each."""

QUESTIONS = (
    "Name the capital of France, then of Japan, then of Kenya.",
    "Count down from 9 to 1, separated by commas.",
    "Write a Python function that returns the larger of two numbers.",
    "Continue the sentence: When the river rose in spring, the miller",
    "Translate into German: The bridge is closed because of the storm.",
    "What is 17 times 23? Answer with the number alone.",
)
"""Asked as chats where texts cannot be scored."""

MAX_TOKENS = 12
"""Of an answer to a question: further on, greedy texts of one model part by chance."""

PROBES_ID = hashlib.sha256(json.dumps([TEXTS, QUESTIONS, MAX_TOKENS]).encode()).hexdigest()[:16]
"""Names the probes."""
