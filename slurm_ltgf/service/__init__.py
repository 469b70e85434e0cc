"""The use cases: sync, measure, order, one pass. Edges and clock come in as arguments."""
