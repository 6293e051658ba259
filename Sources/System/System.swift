// System: see Sources/README.md.
