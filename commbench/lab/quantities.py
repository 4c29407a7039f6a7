"""Rates and delays as people type them (800mbit, 3.2gbit, 5ms), and what of a rate is left for payload."""

import re

from commbench.errors import UsageError

_RATE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*([kmg]?)bit(?:/s|ps)?", re.IGNORECASE | re.ASCII)
_DELAY = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*(us|ms|s)", re.IGNORECASE | re.ASCII)
_SLOWEST_BIT_S, _FASTEST_BIT_S, _LONGEST_US = 10**5, 10**11, 10_000_000

ETHERNET_BYTES = 14  # the header that HTB and our switch count with each packet
TCP_BYTES = 52  # of a packet's MTU: IP and TCP headers with time stamps


def parse_rate(text: str) -> int:
    """Bits per second meant by "800mbit" or "3.2gbit"; decimal prefixes, as tc's. Raises UsageError."""
    match = _RATE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"rate {text!r} is not understood; write it as 100mbit, 3.2gbit")
    rate_bit_s = round(float(match[1]) * {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}[match[2].lower()])
    if not _SLOWEST_BIT_S <= rate_bit_s <= _FASTEST_BIT_S:
        raise UsageError(f"rate {text!r} cannot be set; a link has 100kbit to 100gbit")
    return rate_bit_s


def parse_delay(text: str) -> float:
    """Microseconds meant by "5ms", "200us" or "0s". Raises UsageError."""
    match = _DELAY.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"delay {text!r} is not understood; write it as 200us, 5ms")
    delay_us = float(match[1]) * {"us": 1, "ms": 1e3, "s": 1e6}[match[2].lower()]
    if delay_us > _LONGEST_US:
        raise UsageError(f"delay {text!r} is longer than 10s")
    return delay_us


def format_rate(rate_bit_s: float) -> str:
    """800mbit, 3.2gbit."""
    for letter, unit in (("g", 1e9), ("m", 1e6), ("k", 1e3)):
        if rate_bit_s >= unit:
            return f"{rate_bit_s / unit:g}{letter}bit"
    return f"{rate_bit_s:g}bit"


def payload_GBps(rate_bit_s: float, mtu: int) -> float:
    """GB/s of TCP payload that a rate allows, when each packet is full: what a large message can reach."""
    return rate_bit_s / 8e9 * (mtu - TCP_BYTES) / (mtu + ETHERNET_BYTES)
