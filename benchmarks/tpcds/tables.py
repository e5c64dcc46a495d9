"""The tables of TPC-DS that the chosen queries read, and how they come to be.

Facts stand in the order of the date key of their event, the other tables in that of their keys.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pyarrow as pa

from benchmarks.spark.environments import make
from benchmarks.tpcds import generate
from benchmarks.tpch.tables import Layout, rows

REQUIREMENTS = ("duckdb==1.5.5", "duckdb-extension-tpcds==1.5.5")
"""The extension and the duckdb that it is built for; they have an environment of their own."""
LAYOUTS = {
    "call_center": Layout(("cc_call_center_sk",), 1),
    "catalog_returns": Layout(("cr_item_sk", "cr_order_number"), 2, ("cr_returned_date_sk",)),
    "catalog_sales": Layout(("cs_item_sk", "cs_order_number"), 16, ("cs_sold_date_sk",)),
    "customer": Layout(("c_customer_sk",), 2),
    "customer_address": Layout(("ca_address_sk",), 1),
    "customer_demographics": Layout(("cd_demo_sk",), 8),
    "date_dim": Layout(("d_date_sk",), 1),
    "household_demographics": Layout(("hd_demo_sk",), 1),
    "inventory": Layout(("inv_item_sk", "inv_warehouse_sk", "inv_date_sk"), 32, ("inv_date_sk",)),
    "item": Layout(("i_item_sk",), 1),
    "promotion": Layout(("p_promo_sk",), 1),
    "store": Layout(("s_store_sk",), 1),
    "store_returns": Layout(("sr_item_sk", "sr_ticket_number"), 4, ("sr_returned_date_sk",)),
    "store_sales": Layout(("ss_item_sk", "ss_ticket_number"), 32, ("ss_sold_date_sk",)),
    "time_dim": Layout(("t_time_sk",), 1),
    "warehouse": Layout(("w_warehouse_sk",), 1),
    "web_sales": Layout(("ws_item_sk", "ws_order_number"), 8, ("ws_sold_date_sk",)),
}
"""By name of the table."""


def generated(folder: Path, scale: float, environments: Path) -> None:
    """Make what `generate.generate` makes in ``folder``, unless it is there. Raises Missing where
    the extension cannot be had.
    """
    done = folder / "done"
    if done.exists():
        return
    python = environments / "-".join(REQUIREMENTS) / "bin" / "python"
    if not python.exists():
        make(python, *REQUIREMENTS)
    subprocess.run([python, generate.__file__, str(folder), f"{scale:g}"], check=True)
    done.touch()


def ordered(folder: Path, name: str) -> pa.Table:
    """Return the rows of a generated table in its order."""
    return rows(folder, name, LAYOUTS[name])
