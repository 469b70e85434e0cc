"""Traces: files of other people's formats, and a generator, as workloads."""
