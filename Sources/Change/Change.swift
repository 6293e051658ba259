// Change: see Sources/README.md.
