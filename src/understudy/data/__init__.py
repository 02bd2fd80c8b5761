"""Rows in and out: the public schema, readers, encoding, splits into sites.

Import from the modules: ``from understudy.data.schema import Schema``. Nothing is loaded here, so
that a schema or a study can be read without pandas or torch.
"""
