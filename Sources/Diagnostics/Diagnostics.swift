// Diagnostics: see Sources/README.md.
