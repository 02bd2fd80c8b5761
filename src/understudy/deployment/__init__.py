"""A federation of real machines: keys, what a server shows, who signs a release."""
