"""The only code that knows our files: configuration, ledger."""
