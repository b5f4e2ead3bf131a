"""`ironworks sandbox`: sandboxes for people and programs, with no project and no factory."""

import click

from ironworks.cli.sandbox.listing import doctor, ls
from ironworks.cli.sandbox.making import create, fork, gc, rm
from ironworks.cli.sandbox.using import exec_, get, pause, put, resume, snapshot, usage


@click.group("sandbox", invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """Make, use, snapshot and remove sandboxes by hand; no project is needed."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for each in (create, exec_, put, get, snapshot, fork, pause, resume, usage, ls, rm, gc, doctor):
    command.add_command(each)
