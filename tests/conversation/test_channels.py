"""Replies in channels that begin within a thought."""

from __future__ import annotations

from runtime.conversation.calls import HarmonyParser, harmony_grammar
from tests.conversation.test_calls import CHANNELS, ready, takes
from tests.support.calls import FUNCTIONS, folded


def test_a_thought_that_was_begun_goes_on_in_its_channel() -> None:
    parser, rest = HarmonyParser(is_thinking=True), "m.<|end|><|start|>assistant"
    parts = [*parser.feed(f"{rest}<|channel|>final<|message|>So"), *parser.finish(is_cut=False)]
    assert [part.kind for part in parts] == ["thought", "content"]
    assert folded(parts) == ("m.So", [])
    free, forced = (harmony_grammar(FUNCTIONS, required=required, is_thinking=True) for required in (False, True))
    assert takes(ready(free), f"{rest}<|channel|>final<|message|>So")
    assert takes(ready(free), f"{rest}{CHANNELS}")
    assert takes(ready(forced), f"{rest}<|channel|>commentary to=functions.now json<|message|>{{}}")
    assert not takes(ready(forced), f"{rest}<|channel|>final<|message|>So")
    assert not takes(ready(free), "<|channel|>final<|message|>So<|end|>" * 2)
