"""Releases: generators, classifiers, the bundle, its card, and verification."""

from understudy.release.bundle import Release
from understudy.release.classifier import Classifier
from understudy.release.generator import Generator
from understudy.release.verify import Verdict, verify

__all__ = ["Classifier", "Generator", "Release", "Verdict", "verify"]
