"""The pages of an exchange, rendered here; they ask for nothing that is not of this service."""
