"""The child process as the parent sees it: bytes go in, and bytes come out or it has ended. It never holds us up."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from qkv.adapters.encoding import Unframed, read_frame, write_frame
from qkv.adapters.lineage import MARK, end_all

_BOOT = (
    "import sys; sys.path.append(sys.argv.pop()); from qkv.adapters.lineage import end_with_parent; "
    "end_with_parent(int(sys.argv[2])); from qkv.adapters.worker import main; main()"
)
_ROOT = str(Path(__file__).parents[2])
_KEPT = 8000


class Ended(Exception):  # noqa: N818 - a signal inside this module
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


class Child:
    """The process and its pipes. One thread exchanges messages, one drains what the candidate prints."""

    def __init__(self, memory_limit: int, ahead: Sequence[str] = ()) -> None:
        self._memory_limit = memory_limit
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._deadline = 0.0
        self._text = bytearray()
        self._printed = bytearray()
        self._mark = os.urandom(16).hex()
        self._process, self._requests_to, self._replies_from = _started(memory_limit, ahead, self._mark)
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._exchange, self._drain)]
        for thread in self._threads:
            thread.start()
        self._finish = weakref.finalize(self, _end, self._process, self._mark)

    def send(self, body: bytes, limit: float) -> None:
        """Nothing; hands a request over without waiting. Its answer is due `limit` seconds from now."""
        self._deadline = time.monotonic() + limit
        self._requests.put(body)

    def receive(self) -> bytes:
        """The answer to the request sent last.

        Raises:
            Ended: the child ended, or was ended because it broke a limit.
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
            if self._memory_limit and memory_of(self._process.pid) > self._memory_limit:
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
        raise Ended(reason, code, stack, printed)

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
        _end(self._process, self._mark)
        self._requests.put(None)
        streams: list[list[Any]] = [[self._requests_to, self._replies_from], [self._below()]]
        for thread, read in zip(self._threads, streams, strict=True):
            thread.join(0.5)
            # Where a runaway of the candidate still holds the other end, its thread still reads: closing would wait.
            for stream in read if not thread.is_alive() else ():
                with contextlib.suppress(OSError, ValueError):
                    stream.close()
        self._finish.detach()

    def _below(self) -> Any:
        """What the candidate prints past Python."""
        return self._process.stderr or self._process.stdout

    def _exchange(self) -> None:
        replies: Any = self._replies_from
        try:
            while (body := self._requests.get()) is not None:
                write_frame(self._requests_to, body)
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
        stream = self._below()
        with contextlib.suppress(OSError, ValueError):
            while chunk := os.read(stream.fileno(), 1 << 16):
                self._printed += chunk
                del self._printed[:-_KEPT]


def _started(memory_limit: int, ahead: Sequence[str], mark: str) -> tuple[subprocess.Popen[bytes], BinaryIO, BinaryIO]:
    """The process, the pipe that takes its requests, and the one that gives its replies."""
    boot = [sys.executable, "-P", "-c", _BOOT, str(memory_limit)]
    options: dict[str, Any] = {
        "env": _environment() | {MARK: mark},
        # A group of its own: a Ctrl-C at the terminal is the parent's alone.
        "start_new_session": True,
    }
    pipe = subprocess.PIPE
    if sys.platform == "win32":
        process = subprocess.Popen([*boot, "0", "1", *ahead, _ROOT], stdin=pipe, stdout=pipe, stderr=pipe, **options)
        assert process.stdin is not None
        assert process.stdout is not None
        return process, process.stdin, process.stdout
    # Pipes of their own: the first ones may be written to before any code of ours runs, by a sitecustomize.py.
    (requests, requests_to), (replies_from, replies) = _pipe(), _pipe()
    try:
        process = subprocess.Popen(
            [*boot, str(requests), str(replies), *ahead, _ROOT],
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=subprocess.STDOUT,
            pass_fds=(requests, replies),
            **options,
        )
    except BaseException:
        os.close(requests_to)
        os.close(replies_from)
        raise
    finally:
        os.close(requests)
        os.close(replies)
    return process, os.fdopen(requests_to, "wb"), os.fdopen(replies_from, "rb")


def _pipe() -> tuple[int, int]:
    """Both ends of a pipe, none of them where a process has its stdin, stdout and stderr: ours may be closed."""
    import fcntl  # not on Windows

    ends = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 3) for end in ends]
    for end in ends:
        os.close(end)
    return high[0], high[1]


def _environment() -> dict[str, str]:
    """The parent's environment; where it does not say, one thread for arithmetic (probes are small) and no windows."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return threads | {"MPLBACKEND": "agg"} | dict(os.environ)


def _end(process: subprocess.Popen[bytes], mark: str) -> None:
    end_all(mark, process.pid)
    with contextlib.suppress(OSError):
        process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5.0)


def memory_of(pid: int) -> int:
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
