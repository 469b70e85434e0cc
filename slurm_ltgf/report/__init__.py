"""Pages and charts for people: HTML and SVG made from plain values; nothing is read or fetched."""
