"""The federation: the recipe contract, cohorts, both halves of a round, and the engine."""
