// History: see Sources/README.md.
