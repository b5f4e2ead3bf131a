"""`ironworks init`: look at a repository and write its `ironworks.toml`."""

import shlex
from pathlib import Path

import click

from ironworks.app.place import CONFIG_NAME, Place
from ironworks.cli.options import json_option, place_of, place_options, suggestion
from ironworks.cli.output import print_json, say
from ironworks.core.errors import UsageError


@click.command("init")
@click.option("--force", is_flag=True, help="Replace an ironworks.toml that is there already.")
@place_options
@json_option
def command(force: bool, repository: Path | None, state: Path | None, as_json: bool) -> None:
    """Guess how the repository is built and tested, write ironworks.toml, and say what was guessed."""
    from ironworks.app.detection import detect
    from ironworks.app.starter import starter
    from ironworks.app.trust import TrustStore
    from ironworks.git.repository import Repository

    place = place_of(repository, state)
    if place.bare:
        raise UsageError("a bare repository has no file to write", hint="run this in a checkout")
    base = Repository(place.root).current_branch()
    guess = detect(place.root)
    data = starter(guess, base).encode("utf-8", "replace")
    _write(place, data, force)
    TrustStore().record(place.root, data)
    step = suggestion("ironworks doctor", place)
    if as_json:
        print_json({"file": str(place.config), "base": base, **guess._asdict(), "next": step})
        return
    say(data.decode().rstrip())
    say(f"\nwrote {place.config}, and trusted it. Guessed:")
    for reason in (f"{base!r} is checked out: changes are for it", *guess.reasons):
        say(f"  - {reason}")
    say(f"commit the file, since the copy on {base} counts for [project]:")
    say(f"  git -C {shlex.quote(str(place.root))} add {CONFIG_NAME}")
    say(f"  git -C {shlex.quote(str(place.root))} commit -m Ironworks {CONFIG_NAME}")
    say(f"next: {step}")


def _write(place: Place, data: bytes, force: bool) -> None:
    if not force:
        try:
            with place.config.open("xb") as file:
                file.write(data)
        except FileExistsError:
            raise UsageError(
                f"{place.config} is there already", hint="ironworks init --force replaces it"
            ) from None
        return
    # Beside it and renamed over it: never through a symbolic link, never half written.
    fresh = place.config.with_name(f".{CONFIG_NAME}.new")
    fresh.unlink(missing_ok=True)
    with fresh.open("xb") as file:
        file.write(data)
    fresh.replace(place.config)
