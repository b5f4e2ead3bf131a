"""The database, the event log and the usage ledger: the only SQL."""
