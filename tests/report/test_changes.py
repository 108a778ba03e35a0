"""Changes: a patch by its places, with what differs marked."""

from __future__ import annotations

from hypothesis import given, strategies as st

from qkv.repair import patch_between
from qkv.report.changes import Marked, changed_places, diff_lines, marked

LINES = st.lists(st.sampled_from(["a = 1", "    b = a <= 2", "    b = a < 2", "", "c = 3"]), max_size=12)
ENDS = st.sampled_from(["\n", ""])


def text_of(line: Marked) -> str:
    return "".join(text for _, text in line)


def differing(lines: list[Marked]) -> list[str]:
    return [text for line in lines for differs, text in line if differs]


@given(LINES, LINES, ENDS, ENDS)
def test_the_lines_of_a_diff_are_those_of_the_file_with_their_numbers(
    old: list[str], new: list[str], end: str, new_end: str
) -> None:
    old, new = [*old, "z"], [*new, "z"]
    before, after = ("\n".join(lines) + last for lines, last in ((old, end), (new, new_end)))
    if before == after:
        return
    lines = diff_lines(patch_between("f.py", before.encode(), after.encode()))
    assert all(line.text == old[line.number - 1] for line in lines if line.sign != "+")
    removed = {line.number for line in lines if line.sign == "-"}
    kept = [text for number, text in enumerate(old, 1) if number not in removed]
    assert sorted([*kept, *(line.text for line in lines if line.sign == "+")]) == sorted(new)


def test_places_are_what_changes_between_lines_that_stay() -> None:
    old, new = "a\n    b\nc\n    d\n      e\nf\n", "a\n    B\nc\nf\n"
    first, second = changed_places(diff_lines(patch_between("f.py", old.encode(), new.encode())))
    assert (first.number, [*map(text_of, first.removed)], [*map(text_of, first.added)]) == (2, ["b"], ["B"])
    assert (second.number, [*map(text_of, second.removed)], second.added) == (4, ["d", "  e"], [])


def test_what_differs_is_marked_by_names_numbers_and_operators() -> None:
    old, new = marked(["keep = (i - j <= window)"], ["keep = (i - j < window)"])
    assert (differing(old), differing(new)) == (["<="], ["<"])
    old, new = marked(["softmax(scores, dim=1)"], ["softmax(scores, dim=-1)"])
    assert (differing(old), differing(new)) == ([], ["-"])
    old, new = marked(["a = f(x)", "b = g(a)"], ["a = f(x, 2)", "b = g(a)"])
    assert (differing(old), differing(new)) == ([], [", 2"])


def test_lines_that_have_little_in_common_are_not_marked() -> None:
    old, new = marked(["return x"], ["weights = softmax(scores) @ value"])
    assert differing(old) == differing(new) == []
    assert marked(["gone"], []) == ([[(False, "gone")]], [])
