"""A fuzzer's bytes read as numbers, in order; at their end everything reads as 0."""

from __future__ import annotations


class Reader:
    """``more`` says whether anything is left."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    @property
    def more(self) -> bool:
        return self.at < len(self.data)

    def u8(self) -> int:
        at = self.at
        self.at = at + 1
        return self.data[at] if at < len(self.data) else 0

    def u16(self) -> int:
        return self.u8() << 8 | self.u8()

    def take(self, n: int) -> bytes:
        """Up to ``n`` bytes."""
        at = self.at
        self.at = at + n
        return self.data[at : at + n]
