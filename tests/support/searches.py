"""How long hypothesis searches: fewer examples under the profile `fast`, which `make coverage` chooses."""

from hypothesis import HealthCheck, settings

FAST_PERCENT = 8
"""Of the examples that a test asks for."""
USUAL = 100
"""Examples by hypothesis' own default, to which a test's number refers."""

BUSY = [HealthCheck.too_slow]
"""How long it takes to think of examples says nothing where ten other programs run, or where lines are counted (tools/covered.py)."""

settings.register_profile("usual", deadline=None, suppress_health_check=BUSY)
settings.load_profile("usual")  # of tests that ask for no number of examples; --hypothesis-profile comes later, and counts
settings.register_profile("fast", max_examples=FAST_PERCENT, deadline=None, suppress_health_check=BUSY)


def search(examples: int) -> settings:
    """A decorator: so many examples, or their share under the profile; a fixture may be shared by them."""
    count = max(2, examples * min(settings.default.max_examples, USUAL) // USUAL)  # type: ignore[union-attr]
    return settings(max_examples=count, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, *BUSY])
