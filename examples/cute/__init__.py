"""An example: README.md says what it shows."""
