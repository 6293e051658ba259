// Bytes: see Sources/README.md.
