"""What clients are told to do, they can do."""

from __future__ import annotations

import pytest

from app.server.errors import as_api_error
from runtime.core.errors import SettingsError


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("It does not fit 8. Shorten the prompt, or raise `--context`.", "It does not fit 8. Shorten the prompt."),
        ("input has 9 tokens: too many. Split it, or raise `--context`.", "input has 9 tokens: too many. Split it."),
        ("x has no chat template. Use `--raw` to send the prompt as it is.", "/v1/completions."),
        ("a.bin has 9 tokens, and the context holds 8. Raise `--context`.", "and the context holds 8. Shorten it."),
        ("Another vocabulary. Choose a draft of the family, or run with `--draft off`.", "a draft of the family."),
        ("The text is `-x`: choose another.", "The text is `-x`: choose another."),
    ],
)
def test_clients_are_told_of_no_option_of_the_command_line(message: str, expected: str) -> None:
    assert str(as_api_error(SettingsError(message))).endswith(expected)
