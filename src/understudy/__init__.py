"""Understudy: one synthetic dataset from data owners who may not share rows."""

__version__ = "0.1.0"
