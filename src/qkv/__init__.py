"""qkv tells whether an attention is right, and when it is not, which fault gives exactly its numbers."""
