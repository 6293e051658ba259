// Bench: see Sources/README.md.
