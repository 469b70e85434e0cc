"""The command line: words to calls, rows to text."""
