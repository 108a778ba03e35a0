"""Long sequences: one call at a length where no matrix of scores fits, every row of every head judged."""

from qkv.long_sequence.verdict import with_length as with_length
