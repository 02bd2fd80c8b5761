"""How sealed values travel: the byte format, the transport seam, and the in-process runtime."""

from understudy.runtime.exchange import Exchange
from understudy.runtime.memory import InProcess
from understudy.runtime.wire import Envelope

__all__ = ["Envelope", "Exchange", "InProcess"]
