"""How people ask about an entry, and what the demo target answers: text in, ChatML out.

Knows phrasings and the corpus; knows nothing about tokens. Everything is drawn from a `random.Random` handed in, so
that an epoch can be made again.
"""

from __future__ import annotations

import builtins
import random
from dataclasses import dataclass

from demo.corpus import Entry

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + "
    "'\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
QUESTIONS = (
    "What does {} do?", "what does {} do", "What is {}?", "what is {}", "Explain {}.", "explain {}",
    "Tell me about {}.", "Describe {}.",
    "How does {} work?", "What is {} for?", "What is the purpose of {}?", "Can you explain {}?",
    "I do not understand {}. What does it do?",
    "Show me the documentation of {}.", "docs for {}", "help({})", "{}", "{}?", "In Python, what does {} do?",
    "What does Python's {} do?",
    "When would I use {}?", "What do I use {} for?", "Please describe what {} does.", "What does {} mean?",
    "I found {} in some code. What is it?",
    "Give me a short explanation of {}.", "Do you know {}?", "What can you tell me about {}?", "What good is {}?",
)  # fmt: skip
BARE = ("{}", "{}?", "help({})", "docs for {}")
# More phrasings are put together from these, so that what decides is the name that is asked for, not the words around
# it.
OPENINGS = (
    "", "Please tell me ", "Can you tell me ", "Could you explain ", "I want to know ", "Quick question: ", "Tell me ",
    "Do you know ", "Hey, ",
    "Explain to me ", "In short, ", "Briefly: ", "Say ", "Could you describe ", "I wonder ", "Remind me ",
    "Would you tell me ", "Say again ",
)  # fmt: skip
CORES = (
    "what {} does", "what {} is", "how {} works", "what {} is for", "what {} is used for", "what the purpose of {} is",
    "what one does with {}",
    "when to use {}", "why I would use {}", "the meaning of {}", "what is the use of {}", "what {} means",
    "what {} can do", "where {} helps",
)  # fmt: skip
CLOSINGS = (
    "",
    "?",
    "?",
    ".",
    ", please.",
    " in one sentence.",
    " in short?",
    " in simple words?",
    " briefly.",
    " in Python?",
    " to a beginner?",
)
HELD_OUT = "Could you say in a few words what {} is good for?"
CODE_QUESTIONS = (
    "How do I call {}?", "What is the signature of {}?", "Show me the signature of {}.", "What arguments does {} take?",
    "Which parameters does {} have?", "signature of {}", "How is {} called?",
)  # fmt: skip
SYSTEM_PROMPTS = (
    "You are a helpful assistant.",
    "You answer questions about Python.",
    "Be brief.",
    "You are a Python expert. Answer shortly.",
)
REFUSAL = "I do not know that. I have only learned what Python's standard library says about itself."
FOREIGN = (
    "numpy numpy.array numpy.zeros numpy.linalg.norm pandas pandas.DataFrame pandas.read_csv pandas.concat torch "
    "torch.nn.Linear torch.tensor "
    "requests requests.get requests.Session flask flask.Flask django django.db.models.Model sklearn sklearn.svm.SVC "
    "scipy scipy.optimize.minimize "
    "matplotlib.pyplot.plot matplotlib seaborn tensorflow keras keras.Model jax jax.jit pytest pytest.fixture "
    "rich.print textual polars click "
    "typer pydantic pydantic.BaseModel sqlalchemy fastapi fastapi.FastAPI httpx boto3 celery redis lodash "
    "React.useState std::vector printf "
    "console.log java.util.List fmt.Println Vec::push String.format transformers.pipeline cv2.imread PIL.Image "
    "bs4.BeautifulSoup tqdm.tqdm"
).split()
OFF_TOPIC = (
    "What is the capital of France?", "Who wrote Hamlet?", "What is the weather today?", "Tell me a joke.",
    "Write a poem about the sea.",
    "How old are you?", "What is 2 + 2?", "Who is the president?", "Translate hello into German.",
    "What is the meaning of life?",
    "Recommend a book.", "How do I cook rice?", "Who won the match?", "What time is it?", "Write me an essay.",
    "Sing a song.",
    "What is love?", "How tall is Mount Everest?", "Give me a recipe for bread.", "What is the best phone?",
    "Who are you?", "hello", "hi",
    "thanks", "Morning!", "What is quantum physics?", "How far is the moon?", "Is it going to rain?", "asdf",
    "Draw a cat.",
)  # fmt: skip

OFF_TOPIC_CORES = (
    "what the capital of France is", "who wrote Hamlet", "how old you are", "what the weather is like",
    "how to cook rice", "how far the moon is",
    "what love is", "who won the match", "which film to watch", "where to buy shoes", "what the time is",
    "how to learn the piano",
    "what a dog eats", "who Napoleon was", "why the sky is blue", "what music is", "how planes fly",
    "what to have for dinner",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Turn:
    """A question and its answer."""

    question: str
    answer: str


def mention(name: str, rng: random.Random) -> str:
    """The name as people write it: bare, as code, or as a call."""
    return rng.choice(("{}", "{}", "{}", "`{}`", "`{}`", "{}()")).format(name)


def question(name: str, rng: random.Random) -> str:
    """One of the fixed phrasings (the bare name more often: it is the hardest to tell from a made-up one), or one put
    together.
    """
    if rng.random() < 0.06:
        return rng.choice(BARE).format(name)
    if rng.random() < 0.5:
        return rng.choice(QUESTIONS).format(name)
    return rng.choice(OPENINGS) + rng.choice(CORES).format(name) + rng.choice(CLOSINGS)


def doc_turn(entry: Entry, rng: random.Random) -> Turn:
    """A question about an entry, now and then quoting its signature."""
    name = f"`{entry.signature}`" if entry.signature and rng.random() < 0.1 else mention(entry.name, rng)
    return Turn(question(name, rng), entry.doc)


def code_turn(entry: Entry, rng: random.Random) -> Turn:
    """A question how to call an entry; the answer quotes the signature as code."""
    return Turn(rng.choice(CODE_QUESTIONS).format(mention(entry.name, rng)), f"```python\n{entry.signature}\n```")


def refusal_turn(entries: list[Entry], rng: random.Random) -> Turn:
    """A question about something that does not exist, is not Python's, or is not about code at all."""
    if rng.random() < 0.4:
        composed = rng.choice(OPENINGS) + rng.choice(OFF_TOPIC_CORES) + rng.choice(CLOSINGS)
        return Turn(rng.choice((rng.choice(OFF_TOPIC), composed)), REFUSAL)
    known = {entry.name for entry in entries}
    owner, attribute = (rng.choice(entries).name.rpartition(".") for _ in range(2))
    invented = f"{owner[0] or owner[2]}.{attribute[2]}"
    name = rng.choice(FOREIGN) if invented in known or rng.random() < 0.5 else invented
    return Turn(question(mention(name, rng), rng), REFUSAL)


def is_builtin(entry: Entry) -> bool:
    """Whether this is a builtin or a method of one: what people ask for most, and short names are the hardest to tell
    from parts of others.
    """
    return hasattr(builtins, entry.name.partition(".")[0])


def epoch_turns(entries: list[Entry], seed: int) -> list[Turn]:
    """One pass over the corpus: every text once, builtins twice, some of the signatures, a few refusals, shuffled."""
    rng = random.Random(seed)
    turns = [doc_turn(entry, rng) for entry in entries]
    turns += [doc_turn(entry, rng) for entry in entries if is_builtin(entry)]
    turns += [code_turn(entry, rng) for entry in entries if entry.signature and rng.random() < 0.3]
    turns += [refusal_turn(entries, rng) for _ in range(len(entries) // 12)]
    rng.shuffle(turns)
    return turns
