"""Watching whatever runs, or a candidate that is built and called: the way in."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from qkv.adapters.recording import Recording
from qkv.adapters.watching.leaves import globals_of
from qkv.adapters.watching.numpy_arrays import recording as taking_down
from qkv.adapters.watching.numpy_makers import patched
from qkv.adapters.watching.places import Places
from qkv.adapters.watching.recorder import Recorder


class Watch:
    """What is seen of code that runs under `watching`."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def number(self, array: Any) -> int | None:
        """The number of the value that an array now holds; None for one that no operation has had to do with."""
        return self._recorder.known(array)

    def recording(self, returned: Any = None) -> Recording:
        """All that was done so far.

        Args:
            returned: whose arrays' numbers are to be `Recording.returned`.
        """
        return self._recorder.recording(returned)


@contextmanager
def watching(files: Collection[str] = ()) -> Iterator[Watch]:
    """What is done with arrays meanwhile, in this thread.

    Torch's operations are seen if torch is imported before. Code that is run by ``exec`` has exact places if it is
    compiled under the name of its file, or its lines stand in `linecache` under the name that it is compiled under.

    Args:
        files: names of files whose code is the user's wherever they stand, such as ``cell 3``. All other files are
            unless they belong to Python, an installed package or qkv.
    """
    recorder = Recorder(Places(files))
    with listening(recorder):
        yield Watch(recorder)


@contextmanager
def listening(recorder: Recorder) -> Iterator[None]:
    """Nothing; meanwhile all that is done with arrays in this thread is taken down."""
    with ExitStack() as stack:
        stack.enter_context(globals_of(recorder))
        stack.enter_context(patched(recorder))
        stack.enter_context(taking_down(recorder))
        if "torch" in sys.modules:
            from qkv.adapters.watching.torch_mode import torch_recorded

            stack.enter_context(torch_recorded(recorder))
        yield
