"""The exchange of generators (SGDE): members subscribe, push and pull."""
