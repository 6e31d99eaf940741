"""The command `slipstream`: its commands, exit codes, and no slow imports.

Exit codes: 0 done, 1 our error (one line on standard error), 2 usage, 128 + n ended by signal n (130: Ctrl+C).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from app.cli import options as opt
from app.cli import run_options as of_run
from app.cli.drafting import DraftingCommand
from app.cli.groups import grouped
from app.cli.guard import guard, must_guard
from app.cli.streams import abandon_output, fail, reader_may_leave, require_screen
from app.cli.usage import is_lack_of_memory, run_app
from app.models.cli import app as models
from app.terminal import ENDING, handling, leave, print_text
from runtime.core.children import end_with_parent
from runtime.core.errors import NO_MEMORY, SlipstreamError
from runtime.models.addresses import WORKER_PORT

app = typer.Typer(
    no_args_is_help=True, pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]}
)
app.add_typer(models, name="models")


def _show_version(wanted: bool) -> None:
    if wanted:
        print_text(f"slipstream {version('slipstream')}")
        raise typer.Exit


@app.callback()
def slipstream(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Local models that answer faster, with the same text."""


@app.command(cls=DraftingCommand)
@grouped
def run(
    words: of_run.Words = None,
    *,
    what: of_run.PromptOptions,
    model: of_run.Model = None,
    how: opt.ModelOptions,
    fixed_k: of_run.FixedK = None,
    draft_window: of_run.DraftWindow = None,
    chosen: of_run.SamplingOptions,
    form: of_run.FormOptions,
    shown: of_run.PrintOptions,
) -> None:
    """Answer one prompt.

    For example: slipstream run "What is wrong here?" main.py
    """
    from app.cli import choices, conversation, oneshot
    from app.cli.trace_file import trace_to
    from app.models.seeking import opener

    if shown.logprobs is not None and not shown.as_json:
        raise typer.BadParameter(
            "Log probabilities are part of the JSON object: add --json.", param_hint="'--logprobs'"
        )
    named, texts = choices.named_first(model, words or (), what.prompt)
    before = conversation.chosen(what.continues, what.of_chat, what.raw, texts)
    question = choices.read_prompt(" ".join(texts) if what.raw else choices.with_files(texts))
    start, options = choices.choose_start(named or before.model, None, how, fixed_k)
    pair, expected = start.pair, choices.read_file(what.prediction) if what.prediction else ""
    options = replace(options, draft_window=draft_window or options.draft_window)
    if expected:
        options = choices.with_prediction(pair, options)
    request = oneshot.OneshotRequest(
        question, what.system, what.raw, what.max_tokens, tuple(what.stop or ()),
        choices.sampling(pair, **asdict(chosen)), choices.grammar(**asdict(form)), shown.logprobs, expected,
        before.messages,
    )  # fmt: skip
    choices.say_which(start)
    code = 0
    with trace_to(shown.trace, pair) as file, reader_may_leave():
        open_engine = start.opening(opener(how.draft, file, disturbs=None))  # a search would end with this command
        code = oneshot.run(pair, options, request, shown, open_engine, before.keep)
    raise typer.Exit(code)


@app.command(cls=DraftingCommand)
@grouped
def chat(
    pair: opt.ChatModel = "",
    model: opt.ModelToo = "",
    *,
    how: opt.ModelOptions,
    chosen: opt.ChatOptions,
    attach: opt.Attach = False,
    serve: opt.Serve = False,
    port: opt.Port = None,
    socket: opt.Socket = None,
    api_key: opt.ApiKey = "",
    api_key_file: opt.ApiKeyFile = None,
    allow_origin: opt.AllowOrigin = None,
    chats: opt.Chats = None,
    trace: opt.Trace = None,
) -> None:
    """Chat in the terminal; `slipstream` alone does the same, and `slipstream -c` opens the last chat."""
    require_screen()
    from app.cli import choices, conversation
    from app.cli.keys import chosen_key
    from app.cli.trace_file import trace_to

    if attach:
        model, port = choices.running_server(port, serve or socket is not None), None
    opened, pair = conversation.chat_to_open(pair, chats) if chosen.continues else (None, pair)
    start, options = choices.choose_start(model or pair, chats, how)
    choices.sampling(start.pair, **chosen.values)  # raises for invalid values
    from app.models.seeking import opener
    from app.tui.app import run as open_chat
    from app.tui.chat_settings import Given

    if not serve and (port is not None or socket is not None):
        raise typer.BadParameter("Editors are answered only with --serve: add it.", param_hint="'--port' / '--socket'")
    settings, origins = None, tuple(allow_origin or ())
    api_key = chosen_key(api_key, api_key_file)
    if serve:
        from app.server.command import PORT, ServerSettings
        from app.server.sockets import Addresses

        tcp = PORT if port is None and socket is None else port
        settings = ServerSettings(Addresses("127.0.0.1", tcp, socket), api_key, allow_origins=origins)
    with trace_to(trace, start.pair) as file:
        given, opened_by = Given(chosen.values, chosen.system, opened), partial(opener, how.draft, file)
        open_chat(start, chosen.adapted(options), chats, opened_by, settings, api_key, origins, given)


@app.command(cls=DraftingCommand)
@grouped
def bench(
    pair: opt.PairName = "demo",
    model: opt.ModelToo = "",
    quick: opt.Quick = False,
    runs: opt.Runs = None,
    kinds: opt.Kinds = None,
    max_tokens: opt.BenchTokens = None,
    ks: opt.Ks = None,
    *,
    how: opt.BenchOptions,
    html: opt.Html = None,
    json_file: opt.JsonFile = None,
) -> None:
    """Measure what speculation gains on this machine.

    Plain decode, every drafter at fixed draft lengths, and adaptive decoding, over kinds of text and two temperatures.
    For example: slipstream bench --quick --html report.html
    """
    from app.bench import command, plan
    from app.cli import choices
    from runtime.models.registry import with_files

    chosen, options = choices.choose(model or pair, how)
    names = plan.choose_drafters(with_files(chosen), options.drafters)
    wanted = plan.make_plan(names, quick=quick, kinds=kinds, ks=ks, runs=runs, max_tokens=max_tokens)
    options = replace(options, max_k=max(options.max_k, *wanted.ks))
    code = 0
    with reader_may_leave():
        code = command.run(chosen, options, wanted, command.Files(html, json_file))
    raise typer.Exit(code)


@app.command(cls=DraftingCommand)
@grouped
def serve(
    pair: opt.PairName = "demo",
    model: opt.ModelToo = "",
    port: opt.Port = None,
    host: opt.Host = "127.0.0.1",
    socket: opt.Socket = None,
    api_key: opt.ApiKey = "",
    api_key_file: opt.ApiKeyFile = None,
    allow_origin: opt.AllowOrigin = None,
    alias: opt.Alias = "",
    reasoning: opt.Reasoning = opt.Thoughts.AUTO,
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = False,
    trace: opt.Trace = None,
    *,
    work: opt.WorkOptions,
    how: opt.ModelOptions,
) -> None:
    """Answer editors and other programs.

    OpenAI's, Anthropic's, llama.cpp's and Ollama's interfaces, on this machine only: docs/editors.md.
    For example: slipstream serve demo --socket ~/slipstream.sock
    """
    from app.cli import choices
    from app.cli.keys import chosen_key
    from app.cli.trace_file import trace_to
    from app.models.seeking import opener
    from app.server import command
    from app.server.policy import served_names
    from app.server.sockets import Addresses

    chosen, options = choices.choose(model or pair, how)
    tcp = command.PORT if port is None and socket is None else port
    addresses = Addresses(host, tcp, socket, work.ollama)
    names = served_names(chosen.name, tuple(filter(None, map(str.strip, alias.split(",")))))
    settings = command.ServerSettings(
        addresses, chosen_key(api_key, api_key_file), tuple(allow_origin or ()), quiet, work.policy(names),
        work.drain, choices.folder_of(work.slot_save_path), verbose,
    )  # fmt: skip
    chosen = choices.tempered(chosen, work.temperature)
    chosen = replace(chosen, name=names[0], thinking=chosen.thinking and reasoning is opt.Thoughts.AUTO)
    with trace_to(trace, chosen) as file:
        open_engine = opener(how.draft, file)
        command.serve(lambda on_progress: open_engine(chosen, work.adapted(options), on_progress), settings)


@app.command("trace")
def sum_up(file: opt.TraceOf) -> None:
    """Sum up a trace: what each drafter gained, where the time went, and why passes were plain."""
    from app.cli.trace import show

    show(file)


@app.command()
def forget() -> None:
    """Remove everything that was learned from replies.

    The drafter `suffix` keeps past replies in a folder that only you can read, and so does a pair that learns. This
    removes them for every model, with the heads and draft models that were made from them, unfinished trainings, the
    prompt cache, and the conversation of the last `run`. Chats are kept.
    """
    from app.cli.forget import run as wipe

    wipe()


@app.command()
def doctor(
    pair: opt.DoctorPair = "demo",
    as_json: opt.DoctorJson = False,
    rpc: opt.Rpc = None,
) -> None:
    """Examine this machine and its workers: devices, kernels, the cost of passes, problems and how to fix them."""
    from app.cli.choices import parse_workers
    from app.doctor.command import run as examine

    examine(pair, as_json, None if rpc is None else parse_workers(rpc, ()))


@app.command()
def worker(
    host: opt.WorkerHost = "127.0.0.1",
    port: opt.WorkerPort = WORKER_PORT,
    threads: opt.WorkerThreads = None,
    cache: opt.WorkerCache = False,
) -> None:
    """Compute for another machine's models.

    It takes layers by llama.cpp's RPC, whose protocol is neither encrypted nor authenticated: docs/machines.md shows
    how to tunnel it through ssh. On the other machine: slipstream run "Hello" --rpc HOST:PORT
    """
    from app.cli.worker import run as compute

    compute(host, port, threads, cache)


def main(args: Sequence[str]) -> None:
    """Run the command with these arguments, and end the process with an exit code if it fails."""
    is_child = end_with_parent()
    try:
        if not is_child and must_guard(args):
            raise SystemExit(guard(args))
        with handling(leave, ENDING[:1] if is_child else ENDING):  # beside a model library, the others kill
            run_app(app, args)
    except SlipstreamError as error:
        fail(str(error), 1)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except (ImportError, MemoryError, RuntimeError, SyntaxError, SystemError) as error:
        if not is_lack_of_memory(error):
            raise
        fail(NO_MEMORY, 1)
    except OSError as error:
        abandon_output()
        where = f" ({Path(error.filename)})" if error.filename else ""
        fail(f"{error.strerror or error}{where}. Make room or name another place, and try again.", 1)
