"""The command `slipstream`: its commands, exit codes, and no slow imports.

Exit codes: 0 done, 1 our error (one line on standard error), 2 usage, 130 interrupted.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from app.cli import options as opt
from app.cli.drafting import DraftingCommand
from app.cli.groups import grouped
from app.cli.guard import guard, must_guard
from app.cli.streams import abandon_output, fail, is_terminal
from app.models.cli import app as models
from runtime.core.errors import NO_MEMORY, SlipstreamError
from runtime.models.addresses import WORKER_PORT

app = typer.Typer(
    no_args_is_help=True, pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]}
)
app.add_typer(models, name="models")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"slipstream {version('slipstream')}")
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
    words: opt.Words = None,
    prompt: opt.Prompt = "",
    system: opt.System = "",
    raw: opt.Raw = False,
    max_tokens: opt.MaxTokens = None,
    prediction: opt.Prediction = None,
    stop: opt.Stop = None,
    model: opt.Model = None,
    *,
    how: opt.ModelOptions,
    fixed_k: opt.FixedK = None,
    draft_window: opt.DraftWindow = None,
    temperature: opt.Temperature = None,
    top_k: opt.TopK = None,
    top_p: opt.TopP = None,
    min_p: opt.MinP = None,
    seed: opt.Seed = None,
    repetition_penalty: opt.RepetitionPenalty = 1.0,
    presence_penalty: opt.PresencePenalty = 0.0,
    frequency_penalty: opt.FrequencyPenalty = 0.0,
    json_object: opt.JsonObject = False,
    json_schema: opt.JsonSchema = None,
    regex: opt.Regex = None,
    lark: opt.Lark = None,
    stats: opt.Stats = False,
    as_json: opt.AsJson = False,
    logprobs: opt.Logprobs = None,
    color: opt.Color = False,
    trace: opt.Trace = None,
) -> None:
    """Answer one prompt.

    For example: slipstream run "What does os.path.join do?" --stats
    """
    from app.cli import choices, oneshot
    from app.cli.trace_file import trace_to
    from app.models.seeking import opener

    if logprobs is not None and not as_json:
        raise typer.BadParameter(
            "Log probabilities are part of the JSON object: add --json.", param_hint="'--logprobs'"
        )
    model, prompt = choices.asked(model, [*(words or ()), *filter(None, [prompt])])
    pair, options = choices.choose(model, how, fixed_k)
    options = replace(options, draft_window=draft_window or options.draft_window)
    sampling = choices.sampling(
        pair, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed,
        repetition_penalty=repetition_penalty,
        presence_penalty=presence_penalty, frequency_penalty=frequency_penalty,
    )  # fmt: skip
    grammar = choices.grammar(json_object, json_schema, regex, lark)
    expected = choices.read_file(prediction) if prediction else ""
    if expected:
        options = choices.with_prediction(pair, options)
    request = oneshot.OneshotRequest(
        choices.read_prompt(prompt), system, raw, max_tokens, tuple(stop or ()), sampling, grammar, logprobs, expected
    )
    with trace_to(trace, pair) as file:
        try:
            code = oneshot.run(pair, options, request, oneshot.Printed(stats, as_json, color), opener(how.draft, file))
        except BrokenPipeError:  # the reader has closed the pipe
            abandon_output()
            code = 0
    raise typer.Exit(code)


@app.command(cls=DraftingCommand)
@grouped
def chat(
    pair: opt.ChatModel = "",
    model: opt.ModelToo = "",
    *,
    how: opt.ModelOptions,
    system: opt.ChatSystem = None,
    temperature: opt.Temperature = None,
    seed: opt.Seed = None,
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
    """Chat in the terminal; `slipstream` alone does the same."""
    if not is_terminal():
        raise SlipstreamError(
            'The chat needs a terminal. For one answer, use: slipstream run "What does os.path.join do?"'
        )
    from app.cli import choices
    from app.cli.keys import chosen_key
    from app.cli.trace_file import trace_to

    if attach:
        model, port = choices.running_server(port, serve or socket is not None), None
    start, options = choices.choose_start(model or pair, chats, how)
    choices.sampling(start.pair, temperature=temperature, seed=seed)  # raises for invalid values
    told = {name: value for name, value in (("temperature", temperature), ("seed", seed)) if value is not None}
    from app.models.seeking import opener
    from app.tui.app import run as open_chat

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
        open_chat(start, options, chats, partial(opener, how.draft, file), settings, api_key, origins, told, system)


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
    try:
        code = command.run(chosen, options, wanted, command.Files(html, json_file))
    except BrokenPipeError:
        abandon_output()
        code = 0
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
    several = replace(options, slots=work.parallel + 1, limits=work.limits)  # chats, and one short completion
    with trace_to(trace, chosen) as file:
        open_engine = opener(how.draft, file)
        command.serve(lambda on_progress: open_engine(chosen, several, on_progress), settings)


@app.command("trace")
def sum_up(file: opt.TraceOf) -> None:
    """Sum up a trace: what each drafter gained, where the time went, and why passes were plain."""
    from app.cli.trace import show

    show(file)


@app.command()
def forget() -> None:
    """Remove everything that was learned from replies.

    The drafter `suffix` keeps past replies in a folder that only you can read, and so does a pair that learns. This
    removes them for every model, with the heads and draft models that were made from them, unfinished trainings, and
    the prompt cache. Chats are kept.
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
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        if must_guard(args):
            raise SystemExit(guard(args))
        app(args, prog_name="slipstream")
    except SlipstreamError as error:
        fail(str(error), 1)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except (MemoryError, SyntaxError, SystemError):  # without memory, Python's parser and imports raise these
        fail(NO_MEMORY, 1)
    except ImportError as error:
        if "failed to map segment" not in str(error):  # the dynamic loader's message for too little memory
            raise
        fail(NO_MEMORY, 1)
    except OSError as error:
        abandon_output()
        where = f" ({Path(error.filename)})" if error.filename else ""
        fail(f"{error.strerror or error}{where}. Make room or name another place, and try again.", 1)
