"""Everything that a candidate's process has started, found again by a mark in its environment, and ended.

What starts a session of its own, or is left by its parent, is in no group that could be ended at once. The environment
is inherited all the same. Imports little: the child reads this before anything else.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys

MARK = "QKV_CANDIDATE"
"""The variable that marks a candidate's process and all that it starts."""

_ROUNDS = 5


def end_all(mark: str, root: int) -> None:
    """Nothing; kills the process `root` with its group, and every process that carries the mark or comes from one.

    Args:
        mark: the value of :data:`MARK` in their environment.
        root: the candidate's process.
    """
    # What is being started while we look is found in the next round.
    for _ in range(_ROUNDS):
        found = _found(mark, root)
        if hasattr(os, "killpg"):
            with contextlib.suppress(OSError):
                os.killpg(root, signal.SIGKILL)
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
        if not found:
            return


def end_with_parent(requests: int) -> None:
    """Nothing; leaves a process behind that ends this one and all it started once the parent is gone.

    A thread could not: it waits for ever where a C function holds the interpreter. The process is no child of this
    one, so that a candidate which waits for its own children does not wait for it.

    Args:
        requests: the pipe whose other end the parent holds.
    """
    if not hasattr(os, "fork"):
        return
    root, mark = os.getpid(), os.environ.get(MARK, "")
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    if os.fork() == 0:
        with contextlib.suppress(BaseException):
            _watch(requests, mark, root)
    os._exit(0)


def _watch(requests: int, mark: str, root: int) -> None:
    import select

    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Whoever reads the other pipes must see them end with the candidate's process, not with this one.
    os.closerange(0, requests)
    os.closerange(requests + 1, 256)
    poll = select.poll()
    # Asked for nothing, it tells of the end only.
    poll.register(requests, 0)
    poll.poll()
    end_all(mark, root)


def _found(mark: str, root: int) -> set[int]:
    """The processes to end, this one not among them."""
    found = _with_descendants(_marked(f"{MARK}={mark}")) if sys.platform == "linux" else _seen_by_psutil(root)
    return found - {os.getpid(), 0, 1}


def _marked(entry: str) -> set[int]:
    found = set()
    for pid in _pids():
        # pathlib takes long to import, here and below.
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123
            if entry.encode() in file.read().split(b"\0"):
                found.add(pid)
    return found


def _with_descendants(found: set[int]) -> set[int]:
    """These processes and all that come from them, whatever these have done to their environment."""
    if not found:
        return found
    parents = {pid: parent for pid in _pids() if (parent := _parent(pid))}
    size = 0
    while len(found) > size:
        size = len(found)
        found = found | {pid for pid, parent in parents.items() if parent in found}
    return found


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
    except OSError:
        return []


def _parent(pid: int) -> int:
    """The parent of a process; 0 once it has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            # The command's name stands in parentheses and may hold anything.
            state, parent, *_ = file.read().rpartition(")")[2].split()
    except (OSError, ValueError):
        return 0
    return 0 if state in ("Z", "X") else int(parent)


def _seen_by_psutil(root: int) -> set[int]:
    import psutil  # type: ignore[import-untyped]

    try:
        return {one.pid for one in psutil.Process(root).children(recursive=True)}
    except psutil.Error:
        return set()
