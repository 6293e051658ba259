// Embedded: see Sources/README.md.
