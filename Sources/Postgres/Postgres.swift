// Postgres: see Sources/README.md.
