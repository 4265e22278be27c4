from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.node.hardware import Sysfs, network_cards, power_hints


def sysfs(files: dict[str, str], links: dict[str, str] | None = None) -> Sysfs:
    """A sysfs of these files; folders follow from them."""
    every = [*files, *(links or {})]

    def listing(folder: str) -> tuple[str, ...]:
        inside = (path.removeprefix(folder + "/") for path in every if path.startswith(folder + "/"))
        return tuple(sorted({rest.split("/")[0] for rest in inside}))

    return Sysfs(listing, files.get, (links or {}).get)


NOTHING = sysfs({})
SPARK = sysfs(
    {
        "/sys/class/net/enp1s0f1np1/speed": "200000\n",
        "/sys/class/net/enP2p1s0f1np1/speed": "200000\n",
        "/sys/class/net/wlP9s9/operstate": "down\n",
        "/sys/class/net/enp1s0f1np1/address": "00:11:22:33:44:55\n",
        "/sys/class/net/lo/operstate": "unknown\n",
        "/sys/class/infiniband/rocep1s0f1/node_guid": "0011:2233:4455:6677\n",
        "/sys/class/infiniband/roceP2p1s0f1/node_guid": "0011:2233:4455:6678\n",
        "/sys/class/power_supply/ucsi-source-psy-1/type": "USB\n",
        "/sys/class/power_supply/ucsi-source-psy-1/online": "1\n",
        "/sys/class/power_supply/ucsi-source-psy-1/usb_type": "C [PD] PD_PPS\n",
        "/sys/class/hwmon/hwmon3/name": "spark_hwmon\n",
        "/sys/class/hwmon/hwmon3/power1_cap": "140000000\n",
        "/sys/class/hwmon/hwmon3/power1_label": "pl1\n",
        "/sys/class/hwmon/hwmon3/prochot": "0\n",
        "/sys/class/hwmon/hwmon0/name": "nvme\n",
        "/sys/class/hwmon/hwmon0/temp1_max": "84850\n",
    },
    {
        "/sys/class/net/enp1s0f1np1/device/driver": "mlx5_core",
        "/sys/class/net/enP2p1s0f1np1/device/driver": "mlx5_core",
        "/sys/class/net/wlP9s9/device/driver": "mt7925e",
    },
)
"""A DGX Spark as owners describe one; the file names of `spark_hwmon` are made up after the generic hwmon interface."""


def test_one_physical_port_of_a_spark_shows_as_its_two_interfaces_and_rdma_twins() -> None:
    assert network_cards(SPARK) == (
        "enP2p1s0f1np1 mlx5_core 200000 Mb/s",
        "enp1s0f1np1 mlx5_core 200000 Mb/s",
        "wlP9s9 mt7925e down",
        "roceP2p1s0f1 rdma",
        "rocep1s0f1 rdma",
    )


def test_no_address_of_a_card_is_told() -> None:
    assert "11" not in " ".join(network_cards(SPARK))


def test_supply_and_board_limits_are_told_in_the_kernels_words() -> None:
    assert power_hints(SPARK) == ("USB online PD", "spark_hwmon pl1 140 W", "spark_hwmon prochot 0")


def test_machine_that_tells_nothing_has_no_hints_and_no_cards() -> None:
    assert (power_hints(NOTHING), network_cards(NOTHING)) == ((), ())


def test_card_whose_speed_cannot_be_read_is_still_named() -> None:
    card = {"/sys/class/net/eth0/device/driver": "virtio_net"}
    assert network_cards(sysfs({"/sys/class/net/eth0/speed": "-1\n", "/sys/class/net/eth0/operstate": "up"}, card)) == (
        "eth0 virtio_net up",
    )
    assert network_cards(sysfs({}, card)) == ("eth0 virtio_net",)


@pytest.mark.parametrize("name", ["../../etc", "a/b", "x" * 65, "e\x1b[31m"])
def test_name_that_is_no_safe_path_part_is_passed_over(name: str) -> None:
    hostile = Sysfs(lambda folder: (name,), lambda path: "1", lambda path: "driver")
    assert (network_cards(hostile), power_hints(hostile)) == ((), ())


@given(st.text(max_size=200))
def test_whatever_an_attribute_holds_becomes_one_harmless_line(text: str) -> None:
    files = {path: text for path in ("/sys/class/power_supply/a/type", "/sys/class/hwmon/h/power1_cap", "/sys/class/net/e/speed")}
    files["/sys/class/hwmon/h/name"] = "spark_hwmon"
    told = (*power_hints(sysfs(files)), *network_cards(sysfs(files, {"/sys/class/net/e/device/driver": text or "d"})))
    assert not any(re.search(r"[\x00-\x1f]", line) for line in told)
