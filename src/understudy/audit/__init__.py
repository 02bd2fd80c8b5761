"""Try to prove a study's privacy claims wrong; what fails to do so certifies nothing."""

from understudy.audit.replay import Replay, replay
from understudy.audit.whole import Audit, audit

__all__ = ["Audit", "Replay", "audit", "replay"]
