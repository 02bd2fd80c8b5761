"""Releases: generators, the bundle, its card, and verification."""

from understudy.release.bundle import Release
from understudy.release.generator import Generator
from understudy.release.verify import Verdict, verify

__all__ = ["Generator", "Release", "Verdict", "verify"]
