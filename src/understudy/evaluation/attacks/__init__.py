"""Attacks on synthetic rows, each against members, controls and a naive baseline; see `suite`."""
