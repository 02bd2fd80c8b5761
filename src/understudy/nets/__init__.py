"""Networks whose parameters and batches carry a leading client axis."""
