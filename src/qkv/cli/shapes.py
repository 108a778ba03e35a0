"""``qkv shapes``: the shape of every stage, before anything runs; or of everything that a candidate's code makes."""

from __future__ import annotations

import sys
from typing import Any

import click

from qkv.cli.candidate import called_options, encodable_json, request_of
from qkv.cli.ending import put
from qkv.cli.options import given_fields, in_flags, spec_options
from qkv.errors import QkvError, SpecError
from qkv.spec.field_table import LARGEST_POSITION

COUNT = click.IntRange(min=1, max=LARGEST_POSITION)

AXES = {"num_heads": "heads", "num_kv_heads": "kv_heads", "head_dim": "head_dim", "value_dim": "value_dim",
        "embed_dim": "embed_dim", "batch": "batch", "query_len": "tokens"}  # fmt: skip
"""What the axes are called that flags give the sizes of."""


@click.command("shapes")
@click.argument("target", metavar="[FILE.py[:NAME]]", required=False)
@spec_options
@called_options
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="form of the answer")
@click.option("--batch", type=COUNT, default=None, help="number of sequences; 1 where no file is given")
@click.option("--query-len", type=COUNT, default=None, help="number of queries; 3 where no file is given")
@click.option("--key-len", type=COUNT, default=None, help="number of keys; as many as queries by default")
def command(target: str | None, key_len: int | None, **options: Any) -> None:
    """Predict the shape of every stage, in names and in numbers.

    With a file: the shape of everything that its attention makes, line by line, with an axis of its own size for each
    name; the conditions that sizes have to meet; and where your own sizes (the flags) would hide a mistake. A plain
    script or a notebook is run as it stands, and its arrays are told in its own sizes.

    Exit code: 0 told, 2 bad usage, 4 the candidate could not be run.
    """
    from qkv.report.plain import encodable

    code, text = (0, _of_spec(options, key_len)) if target is None else _of_candidate(target, options)
    put(encodable(text, getattr(sys.stdout, "encoding", None) or "utf-8"))
    raise SystemExit(code)


def _of_spec(options: dict[str, Any], key_len: int | None) -> str:
    from qkv.report.terminal import terminal
    from qkv.shapes import predict_shapes, shapes_text
    from qkv.spec import spec_from_mapping

    given, _ = given_fields(options)
    try:
        spec = spec_from_mapping(given)
        if spec.head_dim is None and spec.embed_dim is None:
            spec = spec.but(head_dim=2)
        batch, query_len = options["batch"] or 1, options["query_len"] or 3
        prediction = predict_shapes(spec, batch=batch, query_len=query_len, key_len=key_len)
        return shapes_text(prediction, terminal().width) + "\n"
    except QkvError as error:
        raise click.UsageError(in_flags(str(error), options["spec_file"])) from None


def _of_candidate(target: str, options: dict[str, Any]) -> tuple[int, str]:
    from qkv.report.terminal import terminal
    from qkv.shaper import sheet_of
    from qkv.shapes import sheet_text, sheet_to_json

    given, whole = given_fields(options)
    sizes = {axis: size for name, axis in AXES.items() if (size := {**options, **given}.get(name)) is not None}
    try:
        request = request_of("shapes", target, given, {**options, "tensors": ()}, whole_spec=whole)
        sheet = sheet_of(request, sizes)
    except SpecError as error:
        raise click.UsageError(in_flags(str(error), options["spec_file"])) from None
    if options["form"] == "json":
        return sheet.exit_code, encodable_json(sheet_to_json(sheet))
    return sheet.exit_code, sheet_text(sheet, terminal().width) + "\n"
