"""Privacy core: bounds, mechanisms, plan, ledger, accounting, claims.

It imports no network and no recipe, so that it can be read and audited alone. Start
with `plan` (what is promised), then `clip` and the mechanisms (what is done), `ledger` (what
is written down) and `claim` (what is said).
"""
