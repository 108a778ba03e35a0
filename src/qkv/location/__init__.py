"""Location: the line of the candidate's source that makes the wrong numbers."""

from qkv.location.locating import located as located
