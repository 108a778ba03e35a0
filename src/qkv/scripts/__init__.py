"""Plain scripts: the attention in their variables found by values and by what is made of what, and judged."""

from qkv.scripts.reporting import Explained as Explained, Instead as Instead, explained as explained
from qkv.scripts.shapes import sheet_of_script as sheet_of_script
