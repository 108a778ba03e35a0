"""Plain scripts: the attention in their variables found by values and by what is made of what, and judged."""
