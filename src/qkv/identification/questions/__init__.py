"""Questions: what a box is asked, one question a file; each enters what it learns into `Found`."""
