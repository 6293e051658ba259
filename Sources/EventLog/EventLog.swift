// EventLog: see Sources/README.md.
