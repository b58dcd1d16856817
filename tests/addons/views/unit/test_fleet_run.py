"""Which cores a run looks at."""

from gdbheapx.addons.views.fleet.run import Core, Share


def test_each_core_is_in_one_share() -> None:
    """Also when there are more cores than before: what stands beside a core does not change its share."""
    cores = [Core("/cores/%d" % number, "") for number in range(1000)]
    parts = [[one for one in cores if Share(number, 4).has(one)] for number in range(4)]
    assert sorted(one for part in parts for one in part) == sorted(cores)
    assert all(200 < len(part) < 300 for part in parts)
