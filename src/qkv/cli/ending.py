"""How a run of the command line ends: always with an exit code that means one thing, and never with a traceback.

Imports little, so that a signal is answered from the start.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import warnings
from typing import Any, NoReturn

FAILED = 4
"""Exit code of whatever could not be done: the candidate's fault or qkv's own."""

RECEIVED: list[int] = []
"""The signals received, as they come. Long work may have ended with a part of its answer, and go no further."""

_STOPPING = [name for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class Stopped(KeyboardInterrupt):
    """A signal asks the process to stop. No ``except Exception`` on the way holds it up.

    Long work that knows part of its answer ends with that; the exit code then is the signal's all the same.
    """


class Interrupted(Stopped, KeyboardInterrupt):
    """Ctrl-C: long work takes it as the end of its time, and answers with what is known so far."""


def run() -> NoReturn:
    """Nothing; runs the command that the arguments of the process name, and ends the process.

    Exit codes beside a command's own: 2 bad usage, 4 qkv itself failed or could not write, 128 and the number of the
    signal where one stopped it (130 for Ctrl-C).
    """
    _listen()
    code = 0
    if not sys.warnoptions:
        # Those of libraries say nothing to a user.
        warnings.simplefilter("ignore")
    try:
        _print_anything()
        code = _run_command()
        if RECEIVED:  # what was known by then is the answer
            code = 128 + RECEIVED[0]
        if sys.stdout is not None:
            sys.stdout.flush()
        code = _stopped(RECEIVED[0]) if RECEIVED else code
    except KeyboardInterrupt:
        # Not the exception's own number: a library that waits may have made another of it.
        code = _stopped(RECEIVED[0] if RECEIVED else signal.SIGINT)
    except BrokenPipeError:
        # Whoever read has seen enough.
        _drop_output()
    except BaseException as error:  # noqa: BLE001 - the last place that can say it in a line
        # A signal that reached an import may have become another exception.
        code = _stopped(RECEIVED[0]) if RECEIVED else _failed(error)
    sys.exit(code)


def _run_command() -> int:
    from click import ClickException
    from click.exceptions import Exit

    from qkv.cli.commands import group

    # Not group.main(), which ends with 1, the code of a wrong attention, for much that is none.
    try:
        if "_QKV_COMPLETE" in os.environ:
            group.main(prog_name="qkv")
        with group.make_context("qkv", sys.argv[1:]) as context:
            group.invoke(context)
    except ClickException as error:
        error.show()
        return error.exit_code
    except Exit as end:
        return end.exit_code
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return 0


def _listen() -> None:
    """Nothing; from now on the first signal raises `Stopped`, and a second one ends the process at once."""

    def stop(number: int, _frame: Any) -> None:
        RECEIVED.append(number)
        if len(RECEIVED) > 1:
            os._exit(128 + number)
        raise Interrupted if number == signal.SIGINT else Stopped

    for name in _STOPPING:
        number = getattr(signal, name)
        # What nohup and a shell's background have set to be ignored stays ignored.
        if signal.getsignal(number) not in (signal.SIG_IGN, None):
            signal.signal(number, stop)


def _stopped(number: int) -> int:
    _drop_output()
    if number == signal.SIGINT:
        _say("interrupted")
    return 128 + number


def _failed(error: BaseException) -> int:
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        _drop_output()
        _say(f"qkv: the output could not be written: {error.strerror}")
    else:
        _say(own_failure(error) + "; please report it")
    return FAILED


def put(text: str) -> None:
    """Nothing; writes to stdout. A reader who has gone (``| head``) has seen enough, and is no error."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()


def own_failure(error: BaseException) -> str:
    """What went wrong in qkv itself, in a line: ``qkv itself failed: KeyError: 'x' (debugger.py:120)``."""
    from qkv.adapters.tracebacks import frame_of_qkv, one_line

    place = frame_of_qkv(error.__traceback__)
    return f"qkv itself failed: {one_line(error)}" + (f" ({place})" if place else "")


def _print_anything() -> None:
    """Nothing; has characters that the terminal's encoding lacks written as escapes."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError, OSError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # only text streams have it


def _say(line: str) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


def _drop_output() -> None:
    """Nothing; what is still to be written to stdout goes nowhere, and Python says nothing of it at the end."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
        os.close(nothing)
