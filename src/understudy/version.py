"""Our own version: also where the package is run from source and not installed."""

__version__ = "0.1.0"
