"""What Alembic runs: the steps, in the transaction that it is handed."""

from __future__ import annotations

from alembic import context

from understudy.exchange.models import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,
)
context.run_migrations()
