"""The commit protocol: claims, transactions, conflict checks, Hudi instants and crash recovery."""
