"""The first tables, and triggers that keep the audit log as it was written."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make them."""
    op.create_table(
        "meta",
        sa.Column("key", sa.String(40), primary_key=True),
        sa.Column("value", sa.Text(), nullable=False),
    )
    op.create_table(
        "members",
        sa.Column("name", sa.String(40), primary_key=True),
        sa.Column("identity", sa.String(64), nullable=False, unique=True),
        sa.Column("role", sa.String(10), nullable=False),
        sa.Column("joined", sa.Double(), nullable=False),
        sa.Column("revoked", sa.Double()),
    )
    op.create_table(
        "invitations",
        sa.Column("code", sa.String(64), primary_key=True),
        sa.Column("role", sa.String(10), nullable=False),
        sa.Column("by", sa.String(40), nullable=False),
        sa.Column("expires", sa.Double(), nullable=False),
        sa.Column("used", sa.String(40)),
    )
    op.create_table(
        "nonces",
        sa.Column("member", sa.String(40), primary_key=True),
        sa.Column("nonce", sa.String(32), primary_key=True),
        sa.Column("expires", sa.Double(), nullable=False, index=True),
    )
    op.create_table(
        "passes",
        sa.Column("token", sa.String(64), primary_key=True),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("member", sa.String(40), sa.ForeignKey("members.name"), nullable=False),
        sa.Column("expires", sa.Double(), nullable=False, index=True),
    )
    op.create_table(
        "pushes",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column(
            "member", sa.String(40), sa.ForeignKey("members.name"), nullable=False, index=True
        ),
        sa.Column("dataset", sa.String(40), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False, index=True),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(10), nullable=False, index=True),
        sa.Column("begun", sa.Double(), nullable=False),
        sa.Column("decided", sa.Double()),
        sa.Column("by", sa.String(40)),
        sa.Column("reason", sa.JSON()),
        sa.Column("facts", sa.JSON()),
        sa.Column("preview", sa.JSON()),
    )
    op.create_index("pushes_of_data", "pushes", ["member", "dataset"])
    op.create_table(
        "pulls",
        sa.Column("push", sa.String(16), sa.ForeignKey("pushes.id"), primary_key=True),
        sa.Column("member", sa.String(40), sa.ForeignKey("members.name"), primary_key=True),
        sa.Column("when", sa.Double(), nullable=False),
    )
    op.create_table(
        "audit",
        sa.Column("seq", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("when", sa.Double(), nullable=False),
        sa.Column("actor", sa.String(64), nullable=False),
        sa.Column("action", sa.String(32), nullable=False),
        sa.Column("subject", sa.String(64), nullable=False),
        sa.Column("details", sa.Text(), nullable=False),
        sa.Column("previous", sa.String(64), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
    )
    _keep_audit()


def _keep_audit() -> None:
    """Rows of the log are added, never changed or removed."""
    if op.get_bind().dialect.name == "sqlite":
        for verb in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER audit_no_{verb.lower()} BEFORE {verb} ON audit "
                "BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END"
            )
        return
    op.execute(
        "CREATE FUNCTION audit_append_only() RETURNS trigger AS $$ "
        "BEGIN RAISE EXCEPTION 'the audit log is append-only'; END $$ LANGUAGE plpgsql"
    )
    op.execute(
        "CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit "
        "FOR EACH STATEMENT EXECUTE FUNCTION audit_append_only()"
    )


def downgrade() -> None:
    """There is nothing before the first step."""
    raise NotImplementedError("the first tables are not taken away")
