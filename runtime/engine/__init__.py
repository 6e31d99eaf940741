"""The engine of one loaded pair: generates replies and reports their text and statistics. Pairing and diagnosis use
one.

The app's only interface to the runtime: plain data in, plain data out. Knows loaded pairs and text. Must not know a
terminal, a protocol or a widget.
"""

from runtime.conversation.chat_template import Message, TemplateForm
from runtime.conversation.infill import Infill
from runtime.conversation.pictured import Pictured, mark_of, mark_of_hash, marks_in, with_images
from runtime.conversation.prompt import PLAIN_STOPS, Beginning, ChatPrompt, Ids, Prompt
from runtime.conversation.quoting import Rendered
from runtime.drafters.reply_store import forget as forget_replies
from runtime.engine.engine import Engine
from runtime.engine.facts import EngineFacts
from runtime.engine.output import Chunk
from runtime.loading.options import Options
from runtime.sampling.grammar import Grammar
from runtime.sampling.logits import TokenLogprobs
from runtime.sampling.schema import closed
from runtime.sampling.settings import PLAIN_NAMES, SAMPLING_NAMES, Sampling, sampling_of, values_of
from runtime.sampling.thoughts import ThoughtBudget

__all__ = [
    "PLAIN_NAMES",
    "PLAIN_STOPS",
    "SAMPLING_NAMES",
    "Beginning",
    "ChatPrompt",
    "Chunk",
    "Engine",
    "EngineFacts",
    "Grammar",
    "Ids",
    "Infill",
    "Message",
    "Options",
    "Pictured",
    "Prompt",
    "Rendered",
    "Sampling",
    "TemplateForm",
    "ThoughtBudget",
    "TokenLogprobs",
    "closed",
    "forget_replies",
    "mark_of",
    "mark_of_hash",
    "marks_in",
    "sampling_of",
    "values_of",
    "with_images",
]
