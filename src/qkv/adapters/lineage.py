"""Everything that a candidate's process has started, found again by a mark in its environment, and ended.

What starts a session of its own, or is left by its parent, is in no group that could be ended at once. The environment
is inherited all the same. Imports little: the child reads this before anything else.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

MARK = "QKV_CANDIDATE"
"""The variable that marks a candidate's process and all that it starts."""

_ROUNDS = 5


def end_all(mark: str, root: int) -> None:
    """Nothing; kills every process that carries the mark or descends from `root`, itself included, but never us.

    Args:
        mark: the value of :data:`MARK` in their environment.
        root: the candidate's process.
    """
    found = _others(mark, root)
    _kill_group(root)
    # What is being started while we look is found in the next round.
    for _ in range(_ROUNDS):
        if not found:
            return
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        found = _others(mark, root)


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
    poll.register(requests, 0)
    while not poll.poll():
        time.sleep(0.1)
    end_all(mark, root)


def _others(mark: str, root: int) -> list[int]:
    """The processes to end, this one not among them."""
    if sys.platform == "linux":
        found = _marked(f"{MARK}={mark}".encode()) | _descendants(root)
    else:
        found = _seen_by_psutil(root)
    return sorted(found - {os.getpid(), 0, 1})


def _marked(entry: bytes) -> set[int]:
    found = set()
    for name in _pids():
        with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:  # noqa: PTH123 - pathlib is slow
            if entry in file.read().split(b"\0") and not _is_over(name):
                found.add(int(name))
    return found


def _descendants(root: int) -> set[int]:
    parents: dict[int, int] = {}
    for name in _pids():
        state, parent = _status(name)
        if state not in ("Z", "X"):
            parents[int(name)] = parent
    found, size = {root} & parents.keys(), -1
    while len(found) > size:
        size = len(found)
        found |= {pid for pid, parent in parents.items() if parent in found}
    return found


def _pids() -> list[str]:
    try:
        return [name for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - pathlib is slow to import
    except OSError:
        return []


def _is_over(name: str) -> bool:
    return _status(name)[0] in ("Z", "X")


def _status(name: str) -> tuple[str, int]:
    """State and parent of a process: ``("S", 1)``."""
    try:
        with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            # The command's name stands in parentheses and may hold anything.
            state, parent, *_ = file.read().rpartition(")")[2].split()
        return state, int(parent)
    except (OSError, ValueError):
        return "X", 0


def _seen_by_psutil(root: int) -> set[int]:
    try:
        import psutil  # type: ignore[import-untyped]

        process = psutil.Process(root)
        return {root, *(one.pid for one in process.children(recursive=True))}
    except Exception:  # noqa: BLE001 - it is gone, or psutil can't tell
        return set()


def _kill_group(root: int) -> None:
    if hasattr(os, "killpg"):
        with contextlib.suppress(OSError):
            os.killpg(root, signal.SIGKILL)
