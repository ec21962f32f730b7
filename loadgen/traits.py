"""What a server can do, as a look at it found: a Trait for each question a run depends on."""

from __future__ import annotations

import msgspec


class Trait(msgspec.Struct, frozen=True, kw_only=True):
    """One question and what was found: `has` None where it cannot be told.

    `says`: what was seen, with its figures. `instead`: what the run will do for a no; empty where it needs
    nothing. All are fit to be shown and kept: no secret, no control character.
    """

    name: str
    has: bool | None
    says: str
    instead: str = ""
