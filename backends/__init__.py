"""Target languages: one module or package each, with its emitter and its assembler."""
