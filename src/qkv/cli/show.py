"""``qkv show``: attention weights as a page, and what its heads look at in a few lines."""

from __future__ import annotations

import json
import os
import shlex
import webbrowser
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from qkv.cli.candidate import candidate_options, request_of
from qkv.cli.ending import FAILED, put
from qkv.cli.options import given_fields, in_flags, spec_options
from qkv.cli.pages import PageFile, write_page
from qkv.errors import CandidateError, QkvError, SpecError

SHARES = {"capture": 0.5, "patterns": 0.2, "page": 0.3}
"""How much of the work each part is, for the bar of progress."""


class Unshown(click.ClickException):
    """What could not be shown, though the command was a good one."""

    exit_code = FAILED


@click.command("show")
@click.argument("target", metavar="[DUMP | FILE.py[:NAME] | SCRIPT.py]", required=False)
@click.option("--model", metavar="FOLDER | NAME", help="a language model of transformers, from files on this machine")
@click.option("--text", help="what a language model reads; the embedded one unless --model names another")
@click.option("--tokens", metavar='"A B C" | FILE', help="a label for each key, apart from each other or one a line")
@click.option("--sequence", type=click.IntRange(min=0), default=0, help="which sequence of a batch")
@click.option("--length", type=click.IntRange(2, 4096), help="tokens of the input on which a candidate is read")
@click.option(
    "--output", type=PageFile(), default="show.html", show_default=True, metavar="FILE.html", help="where the page goes"
)
@click.option("--force", is_flag=True, is_eager=True, help="write over a file that is no page of qkv")
@click.option("--open", "open_it", is_flag=True, help="open the page in the browser")
@spec_options
@candidate_options
def command(
    target: str | None, model: str | None, text: str | None, tokens: str | None, sequence: int, length: int | None,
    output: Path, force: bool, open_it: bool, verbose: bool, **options: Any,
) -> None:  # fmt: skip
    """Show attention weights: those in a dump, those of a candidate beside the right ones, those of a language model.

    \b
    qkv show                                    the model that comes with qkv
    qkv show dump.safetensors --tokens "a b c"  weights in it, or made of its query and key
    qkv show my_attention.py:Attention          read from outside
    qkv show --model ./gpt2 --text "the cat sat on the mat" --layer 3

    Exit code: 0 shown, 2 bad usage, 4 could not be shown.
    """  # noqa: D301 - click wants the character itself, which a raw string has not
    from qkv.cli.progress import progress_bar

    if model is not None:
        if target is not None or text is None:
            raise click.UsageError(f'a model is shown with a text: qkv show --model {model} --text "the cat sat"')
        target = model
    elif target is not None and text is not None:
        raise click.UsageError(
            f"a text is for a language model. Give either {target} or --text; or --model with --text"
        )
    elif target is not None and _is_sentence(target):
        raise click.UsageError(
            f"no such file: {target}. Did you mean --text? Write: qkv show --text {shlex.quote(target)}"
        )
    labels = None if tokens is None else _labels(tokens)
    layer = options["layer"]
    given, whole = given_fields({**options, "layer": layer if options["spec_file"] else None})
    try:
        request = request_of("show", target or "", given, options, whole_spec=whole)
        with progress_bar("attention weights") as advance:
            wanted = {"text": text, "sequence": sequence, "layer": layer, "length": length}
            words, page = _shown(replace(request, target=target), wanted, labels, advance)
    except CandidateError as error:
        raise Unshown(_in_lines(error)) from None
    except SpecError as error:
        raise click.UsageError(in_flags(str(error), options["spec_file"])) from None
    except QkvError as error:
        raise Unshown(str(error)) from None
    put(words)
    write_page(output, page, "text")
    if open_it and not webbrowser.open(output.resolve().as_uri()):
        put("            no browser could be opened\n")


def _is_sentence(target: str) -> bool:
    """Whether what was given has a blank in it and names no file, nor something in a file."""
    paths = target, target.rpartition(":")[0]
    return len(target.split()) > 1 and not any(map(os.path.exists, paths))  # Path's raises for what is too long


def _shown(request: Any, wanted: dict[str, Any], tokens: Sequence[str] | None, advance: Any) -> tuple[str, str]:
    """What is said of the weights in the terminal, and their page."""
    from qkv.captures.patterns import named, scores_of
    from qkv.captures.summary import summary
    from qkv.report.terminal import terminal
    from qkv.viewer import Wanted, captured

    def part(name: str) -> Any:
        return lambda share: advance(share * SHARES[name])

    view = captured(replace(request, advance=part("capture")), Wanted(**wanted))
    if tokens is not None:
        view = view.but(tokens=tokens)
    scores = scores_of(view, part("patterns"))
    view = named(view, scores)
    return summary(view, scores, terminal()), view.html(part("page"))


def _labels(given: str) -> list[str]:
    """The tokens that ``--tokens`` names: words, or lines of a file, or the list in a file of JSON.

    Raises:
        click.UsageError: there are none, or no such file.
    """
    file = Path(given)
    try:
        labels = _in_file(file.read_text("utf-8-sig")) if file.is_file() else given.split()
    except (OSError, ValueError) as error:  # too long for a name, or no text
        if isinstance(error, UnicodeDecodeError):
            raise click.UsageError(f"--tokens: {given} is no text file in UTF-8") from None
        labels = given.split()
    if labels == [given] and ("/" in given or file.suffix[1:].isalpha()):
        raise click.UsageError(f'--tokens: no such file: {given}. Or give the tokens: --tokens "the cat sat"')
    if not labels:
        raise click.UsageError('--tokens is empty. Write: --tokens "the cat sat"')
    return labels


def _in_file(text: str) -> list[str]:
    """The entries of a list in JSON; the lines of any other text."""
    with suppress(ValueError):
        held = json.loads(text)
        if isinstance(held, list):
            return [str(one) for one in held]
    return text.splitlines()


def _in_lines(error: CandidateError) -> str:
    return "\n".join([error.message, *(["  " + error.detail.rstrip()] if error.detail else []),
                      *(["Try: " + error.hint] if error.hint else [])])  # fmt: skip
