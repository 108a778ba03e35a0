"""The child process that holds a candidate: answers requests on its first two pipes until they close.

Imports little, since its start is part of every check.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import signal
import sys
from importlib import import_module
from os import _exit  # by name: a candidate may replace that of the module
from typing import Any, BinaryIO

from qkv.adapters.encoding import LOST, decode, encode, read_frame, write_frame
from qkv.adapters.host import Host
from qkv.adapters.replaced import blamed
from qkv.adapters.tracebacks import frame_of_qkv, one_line
from qkv.errors import CandidateError

LONGEST = 1e6
"""Seconds; clocks of some systems can't count further."""
REQUESTS = ("open", "build", "state", "assign", "call", "tensor_shapes", "tensor_array", "script")


def main() -> None:
    """Nothing; serves until the parent closes the pipe, then ends the process whatever the candidate left running.

    The arguments of the process are the memory limit in bytes (0 means none), the numbers of the two pipes, and the
    packages to import ahead.
    """
    limit, *pipes = map(int, sys.argv[1:4])
    ahead = sys.argv[4:]
    limit_memory(limit)
    # A script that reads its arguments when it is imported finds none.
    sys.argv = ["qkv"]
    # Importing a framework makes many objects and no garbage: looking for it would cost a tenth of the time.
    gc.set_threshold(100_000, 20, 100)
    requests, replies = take_over_streams(*pipes)
    # What faulthandler writes goes to the pipe of the replies: in front of it the parent sees that it is no message.
    faulthandler.enable(file=replies.fileno())
    if hasattr(faulthandler, "register"):
        faulthandler.register(signal.SIGUSR1, file=replies.fileno(), all_threads=True)
    for package in ahead:
        with contextlib.suppress(Exception):  # whoever imports it in earnest is told why it can't be
            import_module(package)
    try:
        serve(requests, replies)
    except OSError:
        # The candidate closed the pipes, or the parent is gone.
        _exit(LOST)
    _exit(0)


def take_over_streams(requests: int, replies: int) -> tuple[BinaryIO, BinaryIO]:
    """The pipes to and from the parent, which nothing that the candidate starts gets to see.

    Where they are stdin and stdout, stdin then gives nothing, and stdout is what stderr is: out of the way.
    """
    streams = os.fdopen(os.dup(requests), "rb"), os.fdopen(os.dup(replies), "wb")
    if requests:
        os.close(requests)
        os.close(replies)
    else:
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
    return streams


def limit_memory(limit: int) -> None:
    """Nothing; lets the process have no more data than this, where the system can, and leave no core file."""
    with contextlib.suppress(ImportError, ValueError, OSError, OverflowError):
        import resource  # not on Windows

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if limit and sys.platform == "linux":
            # Data, not address space: torch maps far more than it ever uses.
            resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def serve(requests: BinaryIO, replies: BinaryIO) -> None:
    """Nothing; answers one request after another, and returns when there will be no more."""
    host, process = Host(isolated=True), os.getpid()
    while (body := read_frame(requests)) is not None:
        try:
            name, arguments, patience = decode(body)
        except CandidateError as error:
            write_frame(replies, encode(blamed("reading a request") or error))
            continue
        # The parent stops a request that takes too long. Should the parent be gone, this does.
        faulthandler.dump_traceback_later(min(patience, LONGEST), exit=True, file=replies.fileno())
        answer = answered(host, name, arguments)
        if os.getpid() != process:
            # The candidate has forked, and this is the fork: it must not answer too.
            _exit(0)
        faulthandler.cancel_dump_traceback_later()
        write_frame(replies, answer)


def answered(host: Host, name: str, arguments: tuple[Any, ...]) -> bytes:
    """The bytes of what the host answers to a request, or of the error it raised."""
    try:
        if name not in REQUESTS:
            raise CandidateError(f"no such request: {name}")
        return encode(getattr(host, name)(*arguments))
    except CandidateError as error:
        return encode(error)
    except BaseException as error:  # noqa: BLE001 - the parent must hear of a fault of qkv's own too
        message = f"qkv itself failed: {one_line(error)} ({frame_of_qkv(error.__traceback__)}); please report it"
        return encode(blamed(f"{name} in the candidate's process") or CandidateError(message))


if __name__ == "__main__":
    main()
