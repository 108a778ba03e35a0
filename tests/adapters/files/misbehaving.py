"""Functions that end badly, each in its own way. NumPy only, so that the child starts quickly."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np


def right(x):
    return x + 1


def spins(x):
    while True:
        x = x + 0


def sleeps(x):
    time.sleep(600)


def crashes(x):
    import ctypes

    ctypes.string_at(0)


def aborts(x):
    os.abort()


def leaves(x):
    os._exit(3)


def exits(x):
    sys.exit("no more")


def interrupts(x):
    raise KeyboardInterrupt


def floods(x):
    while True:
        print("flood" * 1000)


def floods_below(x):
    while True:
        os.write(1, b"flood" * 1000)
        os.write(2, b"flood" * 1000)


def writes_much(x):
    os.write(1, b"x" * 10_000_000)
    sys.stderr.write("tail")
    return x


def hogs(x):
    return [np.ones(1 << 24) for _ in range(1000)]


def asks(x):
    return input("which? ")


def garbles(x):
    for number in range(3, 20):
        with contextlib.suppress(OSError):
            os.write(number, b"this is no message")
    return x


def forges(x):
    import struct

    body = struct.pack("<Q", 5) + b"[1,]]"
    for number in range(3, 20):
        with contextlib.suppress(OSError):
            os.write(number, struct.pack("<4sQ", b"\x93QKV", len(body)) + body)
    time.sleep(60)


def closes(x):
    os.closerange(3, 100)
    return x


def forks(x):
    os.fork()
    return x


def runs_away(x):
    if os.fork() == 0:
        os.setsid()
        time.sleep(5)
        os._exit(0)
    return x


def leaves_a_child(x):
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print(process.pid)
    return x


SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


def leaves_a_session(x):
    print(subprocess.Popen(SLEEP, start_new_session=True).pid)
    return x


def leaves_without_a_mark(x):
    print(subprocess.Popen(SLEEP, start_new_session=True, env={}).pid)
    return x


def leaves_a_daemon(x):
    numbers = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(numbers[1], str(os.getpid()).encode())
            time.sleep(600)
        os._exit(0)
    print(os.read(numbers[0], 20).decode())
    return x


def holds_the_interpreter(x):
    import ctypes

    ctypes.PyDLL(None).sleep(600)


def leaves_a_thread(x):
    threading.Thread(target=time.sleep, args=(600,)).start()
    return x


def where(x):
    return {str(Path.cwd()): x, str(sys.argv): x, str("torch" in sys.modules): x}


def changes(x, y=None):
    x[0] = 9
    return x


def recurses(x):
    return recurses(x)


def returns_text(x):
    return "nothing to see"
