"""Local training of many sites at once."""
