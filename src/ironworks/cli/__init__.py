"""The command line: one module per verb, imported only when it is called."""

import importlib
import io
import os
import sys
import traceback
from typing import Any

import click

from ironworks import __version__
from ironworks.cli.output import clean, closest, print_json
from ironworks.core.errors import IronworksError

VERBS: dict[str, str] = {
    "init": "Look at a repository and write its ironworks.toml.",
    "doctor": "Say what this machine lacks, with the exact fix.",
    "trust": "Agree to what the repository's ironworks.toml asks of this machine.",
    "run": "Work on the issues of a backlog.",
    "attach": "Watch the run that goes on in the background.",
    "status": "Say where every issue stands.",
    "show": "Show all that is known about one issue.",
    "report": "Tell what a run came to: outcomes, catches, conflicts, costs, times.",
    "logs": "Show what an agent printed.",
    "events": "Show the record of what happened.",
    "stop": "Stop the running factory; work is captured.",
    "pause": "Freeze the running factory, or one issue.",
    "resume": "Go on after a pause.",
    "retry": "Give an issue that rests another try.",
    "answer": "Answer an issue's questions.",
    "pr": "List, show, compare, merge or close pull requests.",
    "verify": "Prove one branch, as the factory would.",
    "review": "Have an agent review one branch.",
    "integrate": "Merge branches one by one onto the integration branch, suite after each.",
    "grade": "Run the hidden suite on commits; it decides nothing.",
    "sandbox": "Make, use, snapshot and remove sandboxes by hand; no project is needed.",
    "schema": "Print the JSON Schemas of the handoffs.",
    "demo": "Watch ten issues become nine landed changes and a question, with a scripted model.",
}


class Verbs(click.Group):
    """Knows every verb's name and help without importing it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"ironworks.cli.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in VERBS and not args[0].startswith("-"):
            hint = closest(args[0], VERBS) or "see: ironworks --help"
            raise click.UsageError(f"there is no verb {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=Verbs, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ironworks")
@click.pass_context
def cli(context: click.Context) -> None:
    """Issues go in, verified pull requests come out."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main(args: list[str] | None = None) -> None:
    """Run one command and exit: 0 good, 1 not all good, 2 usage or configuration, 3 our own failure."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Names of files and issues may hold what the terminal's encoding cannot.
            stream.reconfigure(errors="backslashreplace")
    sys.exit(_run(sys.argv[1:] if args is None else args))


def _run(args: list[str]) -> int:
    as_json = "--json" in args
    try:
        result = cli.main(args, prog_name="ironworks", standalone_mode=False)
        sys.stdout.flush()
    except IronworksError as error:
        return _fail(as_json, error.code, error.message, error.hint, error.exit_code)
    except click.ClickException as error:
        return _fail(as_json, "usage", error.format_message(), _usage_hint(error), 2)
    except (click.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        # Whoever read our output has left; without this Python complains while it shuts down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return _fail(as_json, "error", str(error), "", 3)
    except Exception as error:  # the last supervisor: whatever happens, programs get JSON and exit code 3
        traceback.print_exc()
        return _fail(as_json, "internal", f"{type(error).__name__}: {error}", "a fault of ironworks", 3)
    return result if isinstance(result, int) else 0


def _usage_hint(error: click.ClickException) -> str:
    context: Any = getattr(error, "ctx", None)
    return f"see: {context.command_path} --help" if context else ""


def _fail(as_json: bool, code: str, message: str, hint: str, exit_code: int) -> int:
    if as_json:
        print_json({"error": {"code": code, "message": message, "hint": hint}})
    print(f"error[{code}]: {clean(message, lines=True)}", file=sys.stderr)
    if hint:
        print(f"  hint: {clean(hint, lines=True)}", file=sys.stderr)
    return exit_code
