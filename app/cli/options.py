"""The options that several commands share, and how a command takes options: dataclasses whose fields are options.

Knows signatures, the panels of the help, and the option names of llama.cpp and Ollama; runs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial, wraps
from inspect import Parameter, signature
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperOption

from runtime.core.outside import is_off, is_text
from runtime.drafters.registry import known_names

if TYPE_CHECKING:  # importing it is slow, and help is shown without
    from runtime.loading.options import Options

DRAFTERS = "DRAFTERS"  # stands for their names in an option's help
ITSELF = "This is chosen automatically for this machine: leave it out."
NAMES = {
    ("-c", "--ctx-size", "--num-ctx"): "Here it is --context N.",
    ("-n", "--n-predict", "--predict", "--num-predict"): "Here it is --max-tokens N.",
    ("--temp",): "Here it is --temperature T.",
    ("-md", "--model-draft", "--spec-draft-model"): "Here it is --draft FILE.",
    ("--draft-max", "--draft-n", "--spec-draft-n-max"): "The draft length adapts; --max-k N limits it.",
    ("-sys", "--sys", "--system-prompt"): "Here it is --system TEXT.",
    ("--repeat-penalty",): "Here it is --repetition-penalty P.",
    ("-np",): "Here it is --parallel N.",
    ("--lora-scaled", "--lora-init-without-apply"): "Here it is --lora FILE=SCALE, with a scale of 0 to begin without.",
    ("-hf", "--hf-repo"): "Here a file of the hub is a model's name: -m hf:owner/repo:file.",
    ("--models-dir",): "Here it is --models FOLDER.",
    ("--models-preset",): "Settings of a model are those of its pair in models.toml.",
    ("-i", "-cnv", "--interactive", "--conversation"): "For a conversation, use: slipstream chat",
    ("-ngl", "--n-gpu-layers", "--gpu-layers", "-fa", "--flash-attn", "-b", "-ub", "--mlock", "--no-mmap"): ITSELF,
}  # fmt: skip
HERE = {name: sentence for names, sentence in NAMES.items() for name in names}
FILES = ("words", "model", "pair", "draft", "mmproj", "lora")  # that may name a file, whose name may be any bytes
OTHER_BYTES = (
    "The text has bytes that are not UTF-8. Set the terminal to UTF-8, or convert the text, such as with `iconv -f "
    "latin1 -t utf8`, and send it on standard input."
)

generation = partial(typer.Option, rich_help_panel="Prompt and length")
models = partial(typer.Option, rich_help_panel="Which models")
sampling = partial(typer.Option, rich_help_panel="Sampling")
measuring = partial(typer.Option, rich_help_panel="What to measure")
output = partial(typer.Option, rich_help_panel="Output")
listening = partial(typer.Option, rich_help_panel="Where to listen")


ModelToo = Annotated[str, typer.Option("--model", "-m", help="The same as an option.", show_default=False)]
PairName = Annotated[str, typer.Argument(help="A pair of models.toml, or the path of a GGUF file.")]


Rpc = Annotated[
    str | None,
    models(
        "--rpc",
        metavar="HOST:PORT,...",
        show_default=False,
        help="Workers (`slipstream worker`) that take layers of the model; 'off' for none.",
    ),
]

Temperature = Annotated[float | None, sampling("--temperature", "-t", help="0 takes the most likely token.")]
Seed = Annotated[int | None, sampling(help="The same seed gives the same text.")]


Trace = Annotated[
    Path | None,
    output(help="Write a line of JSON for each pass to this file; `slipstream trace` sums it up.", show_default=False),
]

NoReadAhead = Annotated[
    bool, models("--no-read-ahead", help="Do not read the next prompt in idle time: while it is typed, after a reply.")
]


def off_too(draft: str) -> str:
    """Return `off` for every word that means it."""
    return "off" if is_off([draft]) else draft


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Options for running a model, shared by all commands that load one."""

    draft: Annotated[str, models(callback=off_too, help="The draft model: a GGUF file, 'auto' or 'off'.")] = "auto"
    mmproj: Annotated[
        str,
        models(
            callback=off_too,
            help="The vision encoder: an mmproj GGUF file, 'auto' for the one beside the model, or 'off'.",
        ),
    ] = "auto"
    drafters: Annotated[
        str | None,
        models(help=f"The drafters: {DRAFTERS}; or none."),
    ] = None
    max_k: Annotated[
        int | None, models(min=1, max=16, help="Draft at most this many tokens per pass (12).", show_default=False)
    ] = None
    context: Annotated[int | None, models(min=16, help="Size of the context in tokens.")] = None
    threads: Annotated[int | None, models(min=1, max=512, help="Number of threads, instead of measuring.")] = None
    exact: Annotated[bool, models("--exact", help="Bit-identical kernels for K-quants too (CPU).")] = False
    fast: Annotated[
        bool,
        models("--fast", help="Draft for seeded replies also where wider passes round differently: text may differ."),
    ] = False
    rpc: Rpc = None
    lora: Annotated[
        list[str] | None,
        models(
            "--lora",
            metavar="FILE[=SCALE]",
            show_default=False,
            help="A LoRA adapter of the model, in GGUF (may be repeated); 'off' for none.",
        ),
    ] = None


def reading_ahead(options: Options, no_read_ahead: bool) -> Options:
    """Return the options, with which prompts are read ahead only if that is wanted here and by the settings."""
    return replace(options, reads_ahead=options.reads_ahead and not no_read_ahead)


class StrictCommand(TyperCommand):
    """A command that recognizes other programs' names for its options, and refuses texts in another encoding: other
    bytes would be asked as if they were characters. Typer exports no types for `ctx` and `formatter`.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Raises BadParameter with our name for a foreign option, and for a text in another encoding."""
        for name in self._foreign(args):
            raise typer.BadParameter(HERE[name], ctx=ctx, param_hint=f"'{name}'")
        left = super().parse_args(ctx, args)
        for parameter in self.params:
            value = ctx.params.get(str(parameter.name))
            texts = value if isinstance(value, (list, tuple)) else [value]
            if parameter.name not in FILES and not all(is_text(text) for text in texts if isinstance(text, str)):
                raise typer.BadParameter(OTHER_BYTES, ctx=ctx, param_hint=f"'{max(parameter.opts, key=len)}'")
        return left

    def _foreign(self, args: list[str]) -> Iterator[str]:
        ours = {name for parameter in self.params for name in (*parameter.opts, *parameter.secondary_opts)}
        names = (each.partition("=")[0] for each in takewhile(lambda each: each != "--", args))
        return (name for name in names if name in HERE and name not in ours)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Insert the names of the drafters, which are loaded only here, because that is slow."""
        for option in self.params:
            if isinstance(option, TyperOption) and DRAFTERS in (option.help or ""):
                option.help = str(option.help).replace(DRAFTERS, ", ".join(known_names()))
        super().format_help(ctx, formatter)


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with the signature for Typer: the fields of each dataclass in place of the dataclass."""
    seen = signature(command, eval_str=True)
    groups: dict[str, Any] = {
        name: each.annotation for name, each in seen.parameters.items() if is_dataclass(each.annotation)
    }

    @wraps(command)
    def with_fields(**given: Any) -> None:
        made = {
            name: group(**{each.name: given.pop(each.name) for each in fields(group)}) for name, group in groups.items()
        }
        command(**given, **made)

    options = [option for each in seen.parameters.values() for option in options_of(each)]
    with_fields.__signature__ = seen.replace(parameters=options)  # type: ignore[attr-defined]
    return with_fields


def options_of(parameter: Parameter) -> Iterator[Parameter]:
    """Yield the parameter itself, or one parameter for each field of its dataclass."""
    group = parameter.annotation
    if not is_dataclass(group):
        yield parameter.replace(kind=Parameter.KEYWORD_ONLY)
        return
    hints = get_type_hints(group, include_extras=True)
    for each in fields(group):
        yield Parameter(each.name, Parameter.KEYWORD_ONLY, default=each.default, annotation=hints[each.name])
