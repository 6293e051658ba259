// Crypto: see Sources/README.md.
