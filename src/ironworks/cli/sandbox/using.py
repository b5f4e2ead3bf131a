"""Verbs that work in one sandbox: exec, put, get, snapshot, pause, resume, usage."""

import os
import posixpath
import sys
from pathlib import Path
from typing import BinaryIO

import click

from ironworks.cli.options import json_option
from ironworks.cli.output import print_json, say
from ironworks.cli.sandbox.options import megabytes, seconds, state_option
from ironworks.core.errors import UsageError

KEPT_BYTES = 4_000_000
"""Of each stream, in `exec --json`: the end."""
MOST_BYTES = 512 << 20
WORK = "/work"
TIMED_OUT = 124
"""As timeout(1) has it."""


@click.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("sandbox")
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("-i", "--stdin", is_flag=True, help="Its standard input is what is piped in; else it has none.")
@click.option(
    "--timeout", metavar="TIME", help="End it after this long, like 90s or 15m; exit code 124 then."
)
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="A variable for it; may be repeated.")
@click.option("--cwd", default="/work", metavar="DIR", help="Where it runs; /work by default.")
@state_option
@json_option
def exec_(
    sandbox: str,
    argv: tuple[str, ...],
    stdin: bool,
    timeout: str | None,
    env: tuple[str, ...],
    cwd: str,
    state: Path | None,
    as_json: bool,
) -> int:
    """Run a command in a sandbox; options go before the sandbox's name.

    Its output and its exit code are passed on. Ctrl-C ends it, and nothing else in the sandbox.
    """
    from ironworks.app.keep import call, kept

    kept_streams = {"stdout": bytearray(), "stderr": bytearray()}
    streams: dict[str, BinaryIO] = {"stdout": sys.stdout.buffer, "stderr": sys.stderr.buffer}

    def show(stream: str, data: bytes) -> None:
        if as_json:
            kept_streams[stream] += data
            del kept_streams[stream][:-KEPT_BYTES]
        else:
            streams[stream].write(data)
            streams[stream].flush()

    words = list(argv[1:] if argv[0] == "--" else argv)
    if not words:
        raise UsageError("there is no command to run", hint="ironworks sandbox exec SANDBOX COMMAND ...")
    result = call(
        kept(state, sandbox),
        "exec",
        _bounded(sys.stdin.buffer) if stdin else b"",
        on_output=show,
        argv=words,
        env=pairs(env),
        cwd=cwd,
        timeout_s=seconds(timeout) if timeout else None,
    )
    if as_json:
        texts = {name: bytes(data).decode("utf-8", "replace") for name, data in kept_streams.items()}
        print_json({**result, **texts})
    code = result["exit_code"]
    return TIMED_OUT if code is None else code if code >= 0 else 128 - code


@click.command("put")
@click.argument("sandbox")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.argument("path")
@click.option(
    "--mode", metavar="OCTAL", help="Its permissions; the file's own by default, 644 for what is piped in."
)
@state_option
@json_option
def put(sandbox: str, file: Path, path: str, mode: str | None, state: Path | None, as_json: bool) -> None:
    """Write a file into a sandbox.

    FILE is - for what is piped in. PATH counts from /work. A folder goes as an archive:
    tar c DIR | ironworks sandbox exec -i SANDBOX tar x
    """
    from ironworks.app.keep import call, kept

    data, own_mode = _content(file)
    target = path + file.name if path.endswith("/") and str(file) != "-" else path
    call(
        kept(state, sandbox),
        "put",
        data,
        path=posixpath.join(WORK, target),
        mode=_octal(mode) if mode else own_mode,
    )
    if as_json:
        print_json({"sandbox": sandbox, "path": target, "bytes": len(data)})


@click.command("get")
@click.argument("sandbox")
@click.argument("path")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True), default="-")
@click.option("--max-bytes", type=click.IntRange(min=0), default=MOST_BYTES, help="Refuse a larger file.")
@state_option
@json_option
def get(sandbox: str, path: str, file: Path, max_bytes: int, state: Path | None, as_json: bool) -> None:
    """Read a file of a sandbox.

    PATH counts from /work. Without a FILE, or a folder for it, it goes to standard output. A folder comes as
    an archive: ironworks sandbox exec SANDBOX tar c DIR | tar x
    """
    from ironworks.app.keep import call, kept

    data = bytearray()
    call(
        kept(state, sandbox),
        "get",
        on_output=lambda _, part: data.extend(part),
        path=posixpath.join(WORK, path),
        max_bytes=min(max_bytes, MOST_BYTES),
    )
    target = file / Path(path).name if file.is_dir() else file
    if str(file) == "-":
        if as_json:
            raise UsageError("--json needs a FILE: standard output cannot be both")
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
        return
    try:
        target.write_bytes(data)
    except OSError as error:
        raise UsageError(f"{str(target)!r} cannot be written: {error.strerror}") from error
    if as_json:
        print_json({"sandbox": sandbox, "path": path, "file": str(target), "bytes": len(data)})


@click.command("snapshot")
@click.argument("sandbox")
@click.argument("name")
@click.option(
    "--stop", is_flag=True, help="End what runs in it first: that is done in an instant, whatever its size."
)
@state_option
@json_option
def snapshot(sandbox: str, name: str, stop: bool, state: Path | None, as_json: bool) -> None:
    """Keep what is on a sandbox's disk now as a snapshot.

    Others can be made from it. Its processes are held for a moment and go on; they are no part of the
    snapshot.
    """
    from ironworks.app.keep import call, kept

    kept(state, name)
    call(kept(state, sandbox), "snapshot", name=name, live=not stop)
    if as_json:
        print_json({"sandbox": sandbox, "snapshot": name})
    else:
        say(f"snapshot {name}\nnext: ironworks sandbox create --from {name}")


@click.command("pause")
@click.argument("sandbox")
@state_option
@json_option
def pause(sandbox: str, state: Path | None, as_json: bool) -> None:
    """Stop everything in a sandbox where it is, until it is resumed."""
    _tell(sandbox, state, "pause", as_json)


@click.command("resume")
@click.argument("sandbox")
@state_option
@json_option
def resume(sandbox: str, state: Path | None, as_json: bool) -> None:
    """Let a paused sandbox go on."""
    _tell(sandbox, state, "resume", as_json)


@click.command("usage")
@click.argument("sandbox")
@state_option
@json_option
def usage(sandbox: str, state: Path | None, as_json: bool) -> None:
    """Say what a sandbox has used, and was refused, since it was booted."""
    from ironworks.app.keep import call, kept

    used = call(kept(state, sandbox), "usage")
    if as_json:
        print_json(used)
        return
    say(f"processor       {used['cpu_s']:.2f} s")
    say(f"memory, at most {megabytes(used['memory_peak_bytes'])}")
    say(f"disk            {megabytes(used['disk_bytes'])}")
    for field, what in (
        ("pids_refused", "processes it was refused"),
        ("oom_kills", "processes ended for want of memory"),
        ("disk_kills", "times ended because its disk had grown too large"),
    ):
        if used[field]:
            say(f"{used[field]} {what}")


def pairs(texts: tuple[str, ...]) -> dict[str, str]:
    """`NAME=VALUE` each; UsageError for what is none."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"{text!r} sets no variable", hint="write it as NAME=VALUE")
        found[name] = value
    return found


def _tell(sandbox: str, state: Path | None, verb: str, as_json: bool) -> None:
    from ironworks.app.keep import call, kept

    call(kept(state, sandbox), verb)
    if as_json:
        print_json({"sandbox": sandbox, verb: True})


def _bounded(file: BinaryIO) -> bytes:
    data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise UsageError(f"more than {MOST_BYTES} bytes at once", hint="bring it in parts")
    return data


def _content(file: Path) -> tuple[bytes, int]:
    """Bytes and permissions."""
    if str(file) == "-":
        return _bounded(sys.stdin.buffer), 0o644
    try:
        with file.open("rb") as opened:
            return _bounded(opened), os.fstat(opened.fileno()).st_mode & 0o777
    except OSError as error:
        hint = "tar c DIR | ironworks sandbox exec -i SANDBOX tar x" if file.is_dir() else ""
        raise UsageError(f"{str(file)!r} cannot be read: {error.strerror}", hint=hint) from error


def _octal(text: str) -> int:
    try:
        mode = int(text, 8)
    except ValueError:
        mode = -1
    if not 0 <= mode <= 0o777:
        raise UsageError(f"{text!r} are no permissions", hint="write them like 644 or 755")
    return mode
