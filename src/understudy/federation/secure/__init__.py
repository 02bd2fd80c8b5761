"""Sums that no server can see through: keys, shares of secrets, masks, and a site's half.

The server's half is `understudy.federation.masking.SecureSum`, whose page tells the whole story.
"""
