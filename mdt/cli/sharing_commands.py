"""The commands for tables that other Hudi writers write, too, and for catalogs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from mdt import table
from mdt.catalogs import HiveMetastore, Polaris, Unity, pointers
from mdt.cli.commands import command, open_table, storage_options, tell
from mdt.cli.terminal import DryRun, Settings, TablePath, settings
from mdt.errors import Invalid
from mdt.progress import bar


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    command(app)(adopt)
    command(app)(refresh)
    command(app)(release)
    command(app, "register")(register_table)


def adopt(
    path: TablePath,
    key_index: Annotated[
        str | None, typer.Option(help="bloom (default), record, simple, memory or lmdb.")
    ] = None,
    scope: Annotated[
        str | None, typer.Option(help="A key is unique per partition (default) or per table.")
    ] = None,
    index: Annotated[
        list[str], typer.Option(help="A skipping index, such as bitmap(status).")
    ] = [],
    compact: Annotated[
        bool, typer.Option(help="Compact file groups with log files at the end.")
    ] = False,
    dry_run: DryRun = False,
    option: Settings = [],
) -> None:
    """Give a table of another Hudi writer the log and the indexes of mdt, without a copy."""
    with bar("adopting") as callback:
        result = table.adopt(
            path,
            key_index=key_index,
            scope=scope,
            indexes=index,
            options=settings(option),
            storage_options=storage_options(),
            compact=compact,
            dry_run=dry_run,
            progress=callback,
        )
    if isinstance(result, table.Table):
        tell({"path": result.path}, f"adopted {result.path}")
        return
    text = (
        f"{result.file_groups} file groups: {result.base_bytes:,} bytes of base files, whose"
        f" footers and keys are read, and {result.log_files} log files with"
        f" {result.log_bytes:,} bytes, whose live rows are copied; about {result.seconds:.0f} s"
    )
    tell(asdict(result), text)


def refresh(path: TablePath) -> None:
    """Import the commits of other Hudi writers into the log."""
    with bar("importing") as callback:
        imports = open_table(path).refresh(callback)
    tell({"imports": imports}, f"{imports} imports")


def release(path: TablePath) -> None:
    """End the adoption of a table: remove the log and the indexes of mdt."""
    table.release(path, storage_options=storage_options())
    tell({"path": path}, f"released {path}")


def register_table(
    path: TablePath,
    name: Annotated[str, typer.Argument(help="Namespace and name, such as lake.trips.")],
    hive: Annotated[str | None, typer.Option(help="A Hive metastore: thrift://HOST:9083.")] = None,
    polaris: Annotated[
        str | None, typer.Option(help="The catalog API of Polaris: https://HOST/api/catalog.")
    ] = None,
    unity: Annotated[
        str | None, typer.Option(help="A server of Unity Catalog: https://HOST.")
    ] = None,
    catalog: Annotated[str, typer.Option(help="The catalog in Polaris or Unity Catalog.")] = "",
    iceberg: Annotated[
        str | None, typer.Option(help="A catalog of Iceberg in the configuration of pyiceberg.")
    ] = None,
    token: Annotated[
        str | None, typer.Option(envvar="POLARIS_TOKEN", help="A bearer token for Polaris.")
    ] = None,
    credential: Annotated[
        str | None, typer.Option(envvar="POLARIS_CREDENTIAL", help="ID:SECRET for Polaris.")
    ] = None,
    unity_token: Annotated[
        str | None, typer.Option(envvar="UNITY_TOKEN", help="A bearer token for Unity Catalog.")
    ] = None,
    location: Annotated[
        str | None, typer.Option(help="URL under which engines find the table: s3a://lake/trips.")
    ] = None,
) -> None:
    """Enter a table in a catalog, so that engines find it by name."""
    found: Any
    if [hive, polaris, unity, iceberg].count(None) != 3:
        raise Invalid(
            "a table is registered in one catalog",
            hint="give --hive, --polaris, --unity or --iceberg",
        )
    if hive is not None:
        found = HiveMetastore(hive)
    elif iceberg is not None:
        found = pointers.loaded(iceberg)
    elif unity is not None:
        found = Unity(unity, catalog, token=unity_token)
    else:
        found = Polaris(str(polaris), catalog, token=token, credential=credential)
    table.register(open_table(path), found, name, location=location)
    tell({"path": path, "name": name}, f"registered {path} as {name}")
