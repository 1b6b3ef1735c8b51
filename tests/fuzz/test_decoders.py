"""Whatever the bytes are, a decoder returns a value or raises the store's own errors, soon."""

from __future__ import annotations

import base64
from contextlib import suppress
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.decoders import DECODERS, Decoder
from tests.fuzz.mutations import mutated
from tests.seeds import examples

MUTATIONS = 30
"""How many mutations of an input each of Hypothesis's examples contains."""
SETTINGS = settings(max_examples=examples(12, 300), suppress_health_check=list(HealthCheck))

every_decoder = pytest.mark.parametrize("decoder", DECODERS.values(), ids=DECODERS.keys())


def meet(decoder: Decoder, data: bytes) -> None:
    try:
        with suppress(*decoder.errors):
            decoder.decode(data)
    except BaseException as error:
        error.add_note(f"{decoder.name} was given {base64.b85encode(data[:4096]).decode()} (base 85)")
        raise


@every_decoder
def test_valid_inputs_are_taken(decoder: Decoder) -> None:
    for seed in decoder.seeds():
        if seed != b"../x":
            decoder.decode(seed)


@every_decoder
def test_random_bytes(decoder: Decoder) -> None:
    @SETTINGS
    @given(st.binary(max_size=300))
    def check(data: bytes) -> None:
        meet(decoder, data)

    check()


@every_decoder
def test_truncated_inputs(decoder: Decoder) -> None:
    for seed in decoder.seeds()[:4]:
        for length in {*range(min(len(seed), 40)), *range(0, len(seed), max(1, len(seed) // 40)), len(seed) - 1}:
            meet(decoder, seed[:length])


@every_decoder
def test_changed_inputs(decoder: Decoder) -> None:
    @SETTINGS
    @given(st.sampled_from(decoder.seeds()), st.integers(0, 2**32))
    def check(seed: bytes, number: int) -> None:
        random = Random(number)
        for _ in range(MUTATIONS):
            meet(decoder, mutated(decoder, seed, random))

    check()
