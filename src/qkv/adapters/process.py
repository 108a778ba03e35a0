"""The candidate in a child process, with limits: however it ends, what comes of it is a reply or a `CandidateError`."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qkv.adapters.encoding import LOST, Unframed, decode, encode, read_frame, write_frame
from qkv.adapters.messages import Array, Call, Facts, Reply
from qkv.adapters.tracebacks import MOST_LINES, code_at, is_own
from qkv.errors import CandidateError

OPEN_LIMIT = 60.0
"""Seconds that loading and building a candidate may take: it imports a framework."""
CALL_LIMIT = 20.0
"""Seconds that one call may take."""
PATIENCE = 10.0
"""Seconds after which the child ends itself, should its parent not be there to stop it at its limit."""
MEMORY_LIMIT = 4 << 30
"""Bytes that the child may have."""

_BOOT = "import sys; sys.path.append(sys.argv.pop()); from qkv.adapters.worker import main; main()"
_ROOT = str(Path(__file__).parents[2])
_KEPT = 8000
_DOING = {"open": "loading", "build": "building", "state": "reading", "assign": "giving weights to", "call": "calling"}


class HostProcess:
    """Holds one candidate in a child process. It has the methods of `Host`; a context manager that ends the child.

    After a failure that ended the child (a crash, a time or memory limit) only `open` works: it starts a new one.

    Args:
        time_limit: seconds that any request may take; None means 60 for loading and building and 20 for a call. It
            may be changed between requests.
        memory_limit: bytes that the child may have; 0 means no limit.
    """

    def __init__(self, *, time_limit: float | None = None, memory_limit: int = MEMORY_LIMIT) -> None:
        self.time_limit = time_limit
        self._memory_limit = memory_limit
        self._child: _Child | None = None
        self._opening: str | None = None
        self._target = ""

    def start(self, target: str | None = None) -> HostProcess:
        """This object, at once: the child starts, and loads the target if one is given, while the caller goes on."""
        if self._child is None:
            self._child = _Child(self._memory_limit)
        if target is not None and self._opening is None:
            self._opening = self._target = target
            self._send("open", target)
        return self

    def open(self, target: Any) -> Facts:
        """What the candidate says of itself, once it is loaded.

        Args:
            target: ``file.py:Name`` or the like.

        Raises:
            CandidateError: it can't be found or loaded, or broke a limit.
        """
        if not isinstance(target, str):
            raise CandidateError(
                f"a {type(target).__name__} can't be handed to another process", hint="name its file: file.py:Name"
            )
        if self._opening != target:
            if self._opening is not None:
                self.close()
            self.start(target)
        self._opening = None
        return self._receive("open", Facts)

    def build(self, kwargs: Mapping[str, Any]) -> Facts:
        """What the object says of itself that the candidate class makes of these arguments (see `Host.build`)."""
        return self._ask("build", dict(kwargs), expected=Facts)

    def state(self) -> dict[str, Array]:
        """Every array the candidate holds by name, floating ones as float64."""
        return self._ask("state", expected=dict)

    def assign(self, arrays: Mapping[str, Array]) -> None:
        """Nothing; gives the named arrays new values of the same shape."""
        self._ask("assign", dict(arrays), expected=type(None))

    def call(self, call: Call) -> Reply:
        """What came of calling the candidate (see `Host.call`)."""
        return self._ask("call", call, expected=Reply)

    def close(self) -> None:
        """Nothing; ends the child and everything it started."""
        child, self._child, self._opening = self._child, None, None
        if child is not None:
            child.kill()

    def __enter__(self) -> HostProcess:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, name: str, *arguments: Any, expected: type) -> Any:
        if self._child is None:
            raise CandidateError("the process that held the candidate has ended", hint="open the candidate again")
        self._send(name, *arguments)
        return self._receive(name, expected)

    def _limit(self, name: str) -> float:
        if self.time_limit is not None:
            return self.time_limit
        return OPEN_LIMIT if name in ("open", "build") else CALL_LIMIT

    def _send(self, name: str, *arguments: Any) -> None:
        assert self._child is not None
        limit = self._limit(name)
        self._child.send(encode((name, arguments, limit + PATIENCE)), limit)

    def _receive(self, name: str, expected: type) -> Any:
        assert self._child is not None
        try:
            answer = decode(self._child.receive())
        except _Ended as ended:
            self.close()
            raise self._failure(name, ended) from None
        except BaseException:
            # Ctrl-C, for one: the child is in a session of its own and has not heard of it.
            self.close()
            raise
        if isinstance(answer, CandidateError):
            raise answer
        if not isinstance(answer, expected):
            self.close()
            raise CandidateError(f"the process that holds the candidate answered with a {type(answer).__name__}")
        return answer

    def _failure(self, name: str, ended: _Ended) -> CandidateError:
        doing = f"{_DOING[name]} {self._target}"
        stood = _frames(ended.stack, self._target)
        where = f"; it stood at {stood[0]}" if stood else ""
        detail = "\n".join(stood[:MOST_LINES]) or ended.printed[-2000:].strip()
        if ended.reason == "time":
            message = f"{doing} took longer than {self._limit(name):g} s and was stopped{where}"
            return CandidateError(message, hint="give smaller sizes, or raise the time limit", detail=detail)
        if ended.reason == "memory":
            message = f"{doing} took more than {self._memory_limit / 2**30:.3g} GiB of memory and was stopped{where}"
            return CandidateError(message, hint="give smaller sizes, or raise the memory limit", detail=detail)
        message = f"{doing} {_how_it_ended(ended)}{where}"
        return CandidateError(message, detail=detail)


class _Ended(Exception):  # noqa: N818 - a signal inside this module
    """The child has ended without an answer.

    Attributes:
        reason: ``time``, ``memory`` or ``exit``.
        code: its exit code; negative for a signal.
        stack: what faulthandler wrote.
        printed: the end of what the child printed past its Python streams.
    """

    def __init__(self, reason: str, code: int | None, stack: str, printed: str) -> None:
        super().__init__(reason)
        self.reason, self.code, self.stack, self.printed = reason, code, stack, printed


class _Child:
    """The process and its pipes. One thread exchanges messages, one drains what the candidate prints."""

    def __init__(self, memory_limit: int) -> None:
        self._memory_limit = memory_limit
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._deadline = 0.0
        self._text = bytearray()
        self._printed = bytearray()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _BOOT, str(memory_limit), _ROOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(),
            # A group of its own: what it starts ends with it, and a Ctrl-C at the terminal is the parent's alone.
            start_new_session=True,
        )
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._exchange, self._drain)]
        for thread in self._threads:
            thread.start()
        self._finish = weakref.finalize(self, _kill_group, self._process)

    def send(self, body: bytes, limit: float) -> None:
        """Nothing; hands a request over without waiting. Its answer is due `limit` seconds from now."""
        self._deadline = time.monotonic() + limit
        self._requests.put(body)

    def receive(self) -> bytes:
        """The answer to the request sent last.

        Raises:
            _Ended: the child ended, or was ended because it broke a limit.
        """
        while True:
            left = self._deadline - time.monotonic()
            answered, answer = self._wait(min(max(left, 0.001), 0.1))
            if answer is not None:
                return answer
            if answered:
                return self._give_up("exit")
            if left <= 0:
                return self._give_up("time")
            if self._memory_limit and _memory_of(self._process.pid) > self._memory_limit:
                return self._give_up("memory")

    def _wait(self, seconds: float) -> tuple[bool, bytes | None]:
        """Whether something came within this time, and the answer, if it was one and not the child's end."""
        try:
            return True, self._answers.get(timeout=seconds)
        except queue.Empty:
            return False, None

    def _give_up(self, reason: str) -> Any:
        if reason != "exit":
            self._ask_for_stack()
        code = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(1.0 if reason == "exit" else 0)
        self.kill()
        stack, printed = self._text.decode("utf-8", "replace"), self._printed.decode("utf-8", "replace")
        raise _Ended(reason, code, stack, printed)

    def _ask_for_stack(self) -> None:
        """Nothing; has faulthandler write where the child stands, which works while a C function holds the GIL too."""
        if hasattr(signal, "SIGUSR1"):
            with contextlib.suppress(OSError):
                os.kill(self._process.pid, signal.SIGUSR1)
                end, seen = time.monotonic() + 1.0, -1
                # Until it has begun, and then until nothing more comes.
                while (not self._text or len(self._text) > seen) and time.monotonic() < end:
                    seen = len(self._text)
                    time.sleep(0.05)

    def kill(self) -> None:
        """Nothing; ends the process with all it started, and closes the pipes."""
        _kill_group(self._process)
        self._requests.put(None)
        streams: list[list[Any]] = [[self._process.stdin, self._process.stdout], [self._process.stderr]]
        for thread, read in zip(self._threads, streams, strict=True):
            thread.join(0.5)
            # Where a runaway of the candidate still holds the other end, its thread still reads: closing would wait.
            for stream in read if not thread.is_alive() else ():
                with contextlib.suppress(OSError, ValueError):
                    stream.close()
        self._finish.detach()

    def _exchange(self) -> None:
        requests: Any = self._process.stdin
        replies: Any = self._process.stdout
        try:
            while (body := self._requests.get()) is not None:
                write_frame(requests, body)
                answer = read_frame(replies)
                self._answers.put(answer)
                if answer is None:
                    return
        except Unframed as other:
            # The interpreter's last words, or a candidate that writes where it should not: no answer will come.
            self._text += other.args[0]
            self._answers.put(None)
            while len(self._text) < 1 << 16 and (more := replies.read1(4096)):
                self._text += more
        except (OSError, ValueError):
            self._answers.put(None)

    def _drain(self) -> None:
        """Nothing; reads all that the candidate prints past Python, so that it never blocks, and keeps the end."""
        stream: Any = self._process.stderr
        with contextlib.suppress(OSError, ValueError):
            while chunk := os.read(stream.fileno(), 1 << 16):
                self._printed += chunk
                del self._printed[:-_KEPT]


def _environment() -> dict[str, str]:
    """The parent's environment; where it does not say, one thread for arithmetic (probes are small) and no windows."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return threads | {"MPLBACKEND": "agg"} | dict(os.environ)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    if hasattr(os, "killpg"):
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(OSError):
        process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5.0)


def _memory_of(pid: int) -> int:
    """How much memory a process has in use, in bytes; 0 once it is gone."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        # Quicker than psutil, which takes long to import.
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    if sys.platform == "linux":
        return 0
    import psutil  # type: ignore[import-untyped]

    with contextlib.suppress(psutil.Error):
        return int(psutil.Process(pid).memory_info().rss)
    return 0


def _frames(stack: str, target: str) -> list[str]:
    """The user's lines of a faulthandler stack, the innermost first: ``file.py:7: while True: (in forward)``."""
    frames = re.findall(r'File "(.+?)", line (\d+) in (.+)', stack)
    own = [(path, int(line), name) for path, line, name in frames if is_own(path, target)]
    return [f"{path}:{line}: {code_at(path, line)} (in {name})" for path, line, name in own]


def _how_it_ended(ended: _Ended) -> str:
    if ended.code in (None, LOST):
        return "broke the connection with qkv: it may close or write to file descriptors that are not its own"
    if ended.code >= 0:
        return f"ended the process with exit code {ended.code}"
    try:
        name = signal.Signals(-ended.code).name
    except ValueError:
        name = f"signal {-ended.code}"
    meaning = {
        "SIGSEGV": "a segmentation fault",
        "SIGABRT": "abort",
        "SIGKILL": "killed from outside, or out of memory",
    }
    return f"crashed with {name}" + (f" ({meaning[name]})" if name in meaning else "")
