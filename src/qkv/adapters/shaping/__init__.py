"""Shapes of a candidate's own arrays, and why they don't fit together; in both frameworks, without importing one."""
