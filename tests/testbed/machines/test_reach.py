"""What may stand behind --on and --reach."""

from __future__ import annotations

import pytest

from testbed.errors import UserError
from testbed.machines.reach import places


def test_a_place_has_a_name_an_address_and_a_command() -> None:
    found = places("a=10.0.0.1,user@b=10.0.0.2", "ssh {host} 'mrcbed tools machine'")
    assert [(p.name, p.address, p.command) for p in found] == [
        ("a", "10.0.0.1", ("ssh", "a", "mrcbed tools machine")),
        ("user@b", "10.0.0.2", ("ssh", "user@b", "mrcbed tools machine")),
    ]


@pytest.mark.parametrize(
    ("on", "reach", "said"),
    [
        ("a=10.0.0.1", "ssh {host}", "name two machines or more"),
        ("a=10.0.0.1,", "ssh {host}", "name two machines or more"),
        ("a=10.0.0.1,a=10.0.0.2", "ssh {host}", "named twice"),
        ("a=10.0.0.1,-oProxyCommand=10.0.0.2", "ssh {host}", "does not begin with '-'"),
        ("a=10.0.0.1,b=10.0.0.1", "ssh {host}", "have the address 10.0.0.1: each needs its own"),
        ("a=10.0.0.1,b=127.0.0.1", "ssh {host}", "127.0.0.1 is no address for others"),
        ("a=10.0.0.1,b=10.0.0.2", "ssh", "it needs {host}"),
        ("a=10.0.0.1,b=10.0.0.2", "ssh '{host}", "No closing quotation"),
        ("a=10.0.0.1,b=fe80::1", "ssh {host}", "give an IPv4 address"),
        (",".join(f"m{n}=10.0.0.{n + 1}" for n in range(17)), "ssh {host}", "16 at most"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(on: str, reach: str, said: str) -> None:
    with pytest.raises(UserError) as refused:
        places(on, reach)
    assert said in str(refused.value) and "\n" not in str(refused.value)
