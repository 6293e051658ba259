// Replication: see Sources/README.md.
