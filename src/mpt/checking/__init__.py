"""`mpt check-method`: whether a method keeps the protocol, on a small made-up federation."""

from mpt.checking.checks import Check, check_method

__all__ = ["Check", "check_method"]
