"""Every block of Python in the documents runs as a test."""

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(), SkipParser()], patterns=["README.md", "DESIGN.md", "CONTRIBUTING.md", "docs/*.md"]
).pytest()
