"""The command line. What it imports, it imports when it is called: a Ctrl-C may come before that is done."""


def main() -> None:
    """Runs the command line and ends the process, however the run ends. See `ending.run` for the exit codes."""
    from qkv.cli.ending import run

    run()
