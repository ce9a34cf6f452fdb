"""Names of actors without the cost of a random one each.

A URN is a valid version 4 UUID, as Pykka's are: a prefix that is random per process, and a
counter in the last twelve digits.
"""

from __future__ import annotations

import os
from itertools import count

from dsh_actors.actors import fork

__all__ = ["format_urn", "next_number"]

_prefix = ""
next_number = count(1).__next__


@fork.in_child
def _new_prefix() -> None:
    global _prefix
    digits = os.urandom(8).hex()
    _prefix = f"urn:uuid:{digits[:8]}-{digits[8:12]}-4{digits[12:15]}-8{digits[13:16]}-"


_new_prefix()


def format_urn(number: int) -> str:
    """Give the URN of the actor with this number in this process."""
    return f"{_prefix}{number:012x}"
