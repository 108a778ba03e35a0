"""A candidate in a child process: it may hang, crash, exit or flood, and what comes of it is said clearly."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import numpy as np
import psutil
import pytest

from qkv.adapters.messages import Call, Config, Reply
from qkv.adapters.process import MEMORY_LIMIT, HostProcess
from qkv.adapters.tracebacks import in_bytes, more_memory
from qkv.errors import CandidateError

FILES = Path(__file__).parent / "files"
MISBEHAVING = str(FILES / "misbehaving.py")
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals and process groups")
X = np.arange(6.0).reshape(2, 3)


@pytest.fixture
def host() -> Iterator[HostProcess]:
    with HostProcess() as host:
        yield host


def failure(name: str, *, time_limit: float = 20.0, memory_limit: int = MEMORY_LIMIT) -> CandidateError:
    with HostProcess(memory_limit=memory_limit) as host:
        host.open(f"{MISBEHAVING}:{name}")
        host.time_limit = time_limit
        with pytest.raises(CandidateError) as caught:
            host.call(Call([X]))
    return caught.value


def line_of(text: str) -> int:
    lines = Path(MISBEHAVING).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def is_running(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


# --- as in this process -----------------------------------------------------------------------------------------------


def test_a_module_is_built_set_and_called(host: HostProcess) -> None:
    target = f"{FILES / 'projecting.py'}:Configured"
    assert host.start(target) is host
    assert host.open(target).what == "class"
    built = host.build({"config": Config({"n_embd": 12}, "BlockConfig")})
    assert built.attributes["config.n_embd"] == 12
    host.open(f"{FILES / 'projecting.py'}:make_attention")
    state = host.state()
    host.assign({name: 0 * array for name, array in state.items()})
    reply = host.call(Call([np.ones((2, 5, 6))], {"return_weights": True}))
    assert [one.path for one in reply.returned] == ["0", "1"]
    np.testing.assert_allclose(reply.returned[1].array, np.full((2, 5, 5), 0.2), rtol=1e-15)
    with pytest.raises(CandidateError, match="holds no array named 'x'"):
        host.assign({"x": np.ones(2)})
    assert host.call(Call([np.ones((2, 5, 6))])).seconds < 5


def test_starting_waits_for_nothing() -> None:
    started = time.perf_counter()
    with HostProcess().start(f"{MISBEHAVING}:sleeps"):
        assert time.perf_counter() - started < 1.0


def test_an_error_of_the_candidate_leaves_the_child_alive(host: HostProcess) -> None:
    for name, said in [
        ("exits", r"calling exits ended the program: sys.exit\('no more'\)"),
        ("interrupts", "calling interrupts raised KeyboardInterrupt"),
        ("recurses", "calling recurses raised RecursionError"),
        ("asks", "calling asks raised EOFError"),
    ]:
        host.open(f"{MISBEHAVING}:{name}")
        with pytest.raises(CandidateError, match=said) as caught:
            host.call(Call([X]))
        assert f'File "{MISBEHAVING}", line ' in caught.value.detail
        assert not caught.value.fatal
    host.open(f"{MISBEHAVING}:right")
    np.testing.assert_array_equal(host.call(Call([X])).returned[0].array, X + 1)


def test_a_change_in_place_is_told(host: HostProcess) -> None:
    host.open(f"{MISBEHAVING}:changes")
    assert host.call(Call([X], {"y": X.copy()})).changed == ["0"]
    assert host.call(Call([X, X])).changed == ["0", "1"]


def test_the_child_is_where_the_user_is_and_has_only_what_it_needs(host: HostProcess) -> None:
    host.open(f"{MISBEHAVING}:where")
    here, arguments, torch = (one.path for one in host.call(Call([X])).returned)
    assert (here, arguments, torch) == (str(Path.cwd()), "['qkv']", "False")
    assert not (FILES / "__pycache__").exists()


def test_what_is_printed_far_below_is_dropped(host: HostProcess) -> None:
    host.open(f"{MISBEHAVING}:writes_much")
    assert host.call(Call([X])).printed == "tail"


def test_no_array_in_the_result(host: HostProcess) -> None:
    host.open(f"{MISBEHAVING}:returns_text")
    reply: Reply = host.call(Call([X]))
    assert (list(reply.returned), reply.result) == ([], "str 'nothing to see'")


def test_only_what_has_a_name_can_be_opened(host: HostProcess) -> None:
    with pytest.raises(CandidateError, match="can't be handed to another process"):
        host.open(print)


# --- limits -----------------------------------------------------------------------------------------------------------


@posix
@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("spins", "x = x + 0"),
        ("sleeps", "time.sleep(600)"),
        ("floods", 'print("flood" * 1000)'),
        ("floods_below", 'os.write(1, b"flood" * 1000)'),
    ],
)
def test_a_hang_is_stopped_and_says_where(name: str, line: str) -> None:
    error = failure(name, time_limit=0.7)
    assert error.message.startswith(f"calling {name} took longer than 0.7 s and was stopped; it stood at ")
    assert error.fatal
    assert error.message.count(line) + error.detail.count(line) <= 1
    assert f"misbehaving.py:{line_of(f'def {name}')}" not in error.message
    assert f"(in {name})" in error.message
    if name != "floods_below":
        # A loop may be stopped at its head, too.
        assert line in error.message or (name == "spins" and "while True:" in error.message)
    assert error.hint == "if it only needs more time: --time-limit 2.1"


def test_a_hang_at_import_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The limit of a call is none for the import of a framework.
    monkeypatch.setattr("qkv.adapters.process.OPEN_LIMIT", 0.7)
    file = tmp_path / "mine.py"
    file.write_text("import time\ntime.sleep(600)\n")
    with (
        HostProcess(time_limit=0.1) as host,
        pytest.raises(CandidateError, match=r"loading .*mine.py took longer than 0.7 s"),
    ):
        host.open(str(file))


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is the system's own on Linux only")
def test_too_much_memory_is_an_error_with_its_line() -> None:
    error = failure("hogs", memory_limit=1 << 29)
    assert error.message == "calling hogs ran out of memory (the limit is 512 MiB)"
    assert "np.ones(1 << 24)" in error.detail
    assert error.hint == "if it only needs more memory: --memory-limit 1G"
    assert not error.fatal


def test_too_much_memory_is_seen_from_outside_too(host: HostProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    host.open(f"{MISBEHAVING}:sleeps")
    # What the child can't be forbidden (on macOS, on Windows, in shared memory) its parent watches.
    monkeypatch.setattr("qkv.adapters.child.memory_of", lambda pid: 5 << 30)
    with pytest.raises(CandidateError, match="took more than 4 GiB of memory and was stopped") as caught:
        host.call(Call([X]))
    assert caught.value.hint == "if it only needs more memory: --memory-limit 8G"
    assert caught.value.fatal


# --- ends -------------------------------------------------------------------------------------------------------------


@posix
@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "crashes",
            r"crashed with SIGSEGV \(a segmentation fault\); it stood at .*misbehaving.py:\d+: ctypes.string_at",
        ),
        ("aborts", r"crashed with SIGABRT \(abort\); it stood at .*misbehaving.py:\d+: os.abort\(\) \(in aborts\)"),
        ("leaves", "ended the process with exit code 3"),
        ("closes", "broke the connection with qkv"),
        ("garbles", "broke the connection with qkv"),
        ("forges", "sent something that is no message"),
    ],
)
def test_an_end_is_named(name: str, said: str) -> None:
    error = failure(name)
    assert error.fatal
    assert re.search(said, error.message)
    assert "Traceback" not in error.message


def test_after_the_end_only_opening_works(host: HostProcess) -> None:
    host.open(f"{MISBEHAVING}:leaves")
    with pytest.raises(CandidateError, match="exit code 3"):
        host.call(Call([X]))
    with pytest.raises(CandidateError, match="exit code 3") as caught:
        host.call(Call([X]))
    assert caught.value.fatal
    host.close()
    with pytest.raises(CandidateError, match="exit code 3"):
        host.state()
    host.open(f"{MISBEHAVING}:right")
    assert host.call(Call([X])).returned


def test_what_was_never_opened_can_not_be_called() -> None:
    with pytest.raises(CandidateError, match="has ended") as caught:
        HostProcess().call(Call([X]))
    assert caught.value.hint == "open the candidate again"
    assert caught.value.fatal


@posix
def test_a_fork_does_not_answer_twice(host: HostProcess) -> None:
    host.open(f"{MISBEHAVING}:forks")
    for _ in range(3):
        np.testing.assert_array_equal(host.call(Call([X])).returned[0].array, X)


@posix
def test_nothing_stays_behind() -> None:
    with HostProcess() as host:
        host.open(f"{MISBEHAVING}:leaves_a_thread")
        host.call(Call([X]))
        host.open(f"{MISBEHAVING}:leaves_a_child")
        grandchild = int(host.call(Call([X])).printed)
        child = host._child._process.pid
        assert is_running(grandchild)
    assert not psutil.pid_exists(child)
    deadline = time.monotonic() + 2
    while is_running(grandchild) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_running(grandchild)


@posix
def test_a_runaway_that_holds_our_pipes_does_not_hold_us() -> None:
    with HostProcess() as host:
        host.open(f"{MISBEHAVING}:runs_away")
        host.call(Call([X]))
        started = time.monotonic()
    assert time.monotonic() - started < 3


@posix
@pytest.mark.parametrize("name", ["leaves_a_session", "leaves_a_daemon", "leaves_without_a_mark"])
def test_what_flees_the_group_is_ended_too(name: str) -> None:
    with HostProcess() as host:
        host.open(f"{MISBEHAVING}:{name}")
        pid = int(host.call(Call([X])).printed)
        assert is_running(pid)
    assert ends(pid)


PARENT = """
    import sys
    from qkv.adapters.messages import Call
    from qkv.adapters import process
    import numpy as np
    with process.HostProcess() as host:
        host.open({misbehaving!r} + ":leaves_a_session")
        started = host.call(Call([np.ones(3)])).printed
        host.open({misbehaving!r} + ":{name}")
        print(host._child._process.pid, started, flush=True)
        host.call(Call([np.ones(3)]))
"""


def parent(name: str) -> tuple[subprocess.Popen[str], list[int]]:
    """A process of its own that checks a candidate that hangs, and the pids of the child and of what that started."""
    text = dedent(PARENT.format(misbehaving=MISBEHAVING, name=name))
    process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, [int(pid) for pid in process.stdout.readline().split()]


def ends(pid: int, seconds: float = 5) -> bool:
    deadline = time.monotonic() + seconds
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not is_running(pid)


@posix
def test_ctrl_c_ends_the_child_at_once_and_without_noise() -> None:
    process, children = parent("spins")
    time.sleep(0.3)
    started = time.monotonic()
    os.kill(process.pid, signal.SIGINT)
    _, told = process.communicate(timeout=10)
    assert time.monotonic() - started < 5
    assert all(map(ends, children))
    assert told.count("Traceback") == 1
    assert told.rstrip().endswith("KeyboardInterrupt")


@posix
@pytest.mark.parametrize("name", ["spins", "holds_the_interpreter"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_child_does_not_outlive_its_parent(name: str, number: signal.Signals) -> None:
    process, children = parent(name)
    time.sleep(0.2)
    process.send_signal(number)
    process.communicate()
    assert all(map(ends, children))


def test_a_sitecustomize_that_prints_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('hello' * 9999, flush=True)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with HostProcess() as host:
        host.open(f"{MISBEHAVING}:right")
        assert host.call(Call([X])).returned


def test_limits_beyond_every_clock_and_memory_do_no_harm() -> None:
    with HostProcess(time_limit=1e300, memory_limit=10**30) as host:
        host.open(f"{MISBEHAVING}:right")
        assert host.call(Call([X])).returned
    with pytest.raises(ValueError, match="give numbers above 0"):
        HostProcess(time_limit=float("nan"))


@pytest.mark.parametrize(
    ("top", "said"),
    [
        ("import builtins; builtins.len = builtins.isinstance = None", "replaces Python's own isinstance, len"),
        ("import random; random.getstate = None", "the candidate has replaced random.getstate, which qkv needs"),
        ("import numpy as np; np.array = np.frombuffer = None", "has replaced numpy.array, numpy.frombuffer"),
        ("import json, os; json.dumps = json.loads = os._exit = None", ""),
        ("import sys; sys.setrecursionlimit(60)", ""),
        ("import sys; sys.modules[__name__] = 3", ""),
    ],
)
def test_what_a_file_does_to_python_is_said_or_does_no_harm(tmp_path: Path, top: str, said: str) -> None:
    file = tmp_path / "spoiling.py"
    file.write_text(f"{top}\n\n\ndef attention(x):\n    return x\n")

    def judge(host: HostProcess) -> Reply:
        host.open(str(file))
        return host.call(Call([X]))

    with HostProcess() as host:
        if not said:
            np.testing.assert_array_equal(judge(host).returned[0].array, X)
            return
        with pytest.raises(CandidateError, match=said) as caught:
            judge(host)
    assert "leave the names of Python" in caught.value.hint


def test_sizes_are_told_as_they_are_typed() -> None:
    told = [in_bytes(number * 2**20) for number in (500, 1000, 1024, 1536, 10**7)]
    assert told == ["500 MiB", "1000 MiB", "1 GiB", "1.5 GiB", "9766 GiB"]
    assert more_memory(500 * 2**20) == "if it only needs more memory: --memory-limit 1000M"


def test_a_breakpoint_is_to_be_taken_out(host: HostProcess) -> None:
    host.open(f"{FILES / 'returning.py'}:debugs")
    with pytest.raises(CandidateError, match="BdbQuit") as caught:
        host.call(Call([X]))
    assert caught.value.hint == "take out breakpoint()"


def test_what_is_imported_ahead_is_there_before_the_candidate(tmp_path: Path) -> None:
    file = tmp_path / "candidate.py"
    file.write_text("import sys\n\ndef f(x):\n    return x * ('colorsys' in sys.modules)\n")
    for ahead, factor in ((("no_such_package", "colorsys"), 1.0), ((), 0.0)):
        with HostProcess(ahead=ahead) as host:
            host.open(f"{file}:f")
            np.testing.assert_array_equal(host.call(Call([X])).returned[0].array, factor * X)
