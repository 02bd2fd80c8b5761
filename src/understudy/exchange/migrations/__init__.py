"""Steps from one version of the tables to the next; run whenever the service starts."""
