"""Makes the language model that the package embeds, and shows what in it learns the task: `python -m training`."""
