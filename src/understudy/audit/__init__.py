"""Try to prove a recipe's privacy claim wrong; what fails to do so certifies nothing."""

from understudy.audit.replay import Replay, replay


__all__ = ["Replay", "replay"]
