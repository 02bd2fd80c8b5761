"""The toy recipes, for these tests."""

from contracts.toys import toys

__all__ = ["toys"]
