// Server: see Sources/README.md.
