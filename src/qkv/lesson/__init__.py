"""The lesson: the article on attention, step by step, on the reader's own input."""
