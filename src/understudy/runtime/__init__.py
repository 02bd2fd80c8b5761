"""How sealed values travel: the byte format, the transport seam, and the runtimes over it."""
