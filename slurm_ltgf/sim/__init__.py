"""A virtual GPU cluster on which policies are compared. Imports core and errors only."""
