"""What the project claims, measured. ``python -m benchmarks`` runs all of it; each module runs alone too."""
