"""Plain scripts and notebooks: read, run statement by statement, and every array that an expression makes noted."""
