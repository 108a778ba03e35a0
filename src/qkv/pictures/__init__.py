"""Pictures: attention weights as heat maps, in a page, a figure, or the terminal."""
