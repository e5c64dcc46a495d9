"""Modules that are imported when their name here is first used.

``import mdt`` and ``mdt.open`` take a few milliseconds because writers, services, planners and
engines are reached through this module, e.g. ``late.compaction.Compaction``. It uses the module
function ``__getattr__`` of PEP 562. Type checkers see ordinary imports.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mdt import create_table, given_options
    from mdt.catalogs import entry as catalog_entry
    from mdt.catalogs import pointers
    from mdt.commit import (
        claims,
        hudi_locks,
        hudi_metadata,
        idempotent,
        publish,
        recovery,
        shared_metadata,
        snapshot_bound,
        transaction,
    )
    from mdt.engines import choice, conditional_tasks, index_tasks, merge_on_engine, spilling
    from mdt.engines import indexing as engine_indexing
    from mdt.engines import rewriting as engine_rewriting
    from mdt.engines import write as engine_write
    from mdt.engines.spark import changes as spark_changes
    from mdt.engines.spark import frame as spark_frame
    from mdt.engines.spark import packages as spark_packages
    from mdt.engines.spark import schema as spark_schema
    from mdt.engines.spark import session as spark_session
    from mdt.engines.spark import source as spark_source
    from mdt.engines.spark import statement as spark_statement
    from mdt.filters import order as order_filter
    from mdt.filters import where as where_filter
    from mdt.formats import registry as formats
    from mdt.importing import imported_storage
    from mdt.metadata import metadata as metadata_table
    from mdt.metadata.log import leases
    from mdt.metadata.snapshot import as_of, live_partitions, read_optimized, transactions
    from mdt.plan import commit_times, planner
    from mdt.scan import first_rows as scan_top
    from mdt.scan import index_use as scan_use
    from mdt.scan import key_columns as scan_keys
    from mdt.scan import lookup
    from mdt.scan import reader as scan_reader
    from mdt.scan import warm as scan_warm
    from mdt.schema import alter as schema_alter
    from mdt.services import auto_maintenance
    from mdt.services.adoption import adopting, metadata_removal, writer_settings
    from mdt.services.checking import check as check_service
    from mdt.services.checking import repair as repair_service
    from mdt.services.history import altering, restoring, tagging, upgrading
    from mdt.services.indexing import index_builder, index_report, rekeying, statistics
    from mdt.services.layout import cluster_table, compaction, rewriting
    from mdt.services.reclaiming import cleaning, purge
    from mdt.services.reports import format_table, overview, summary, svg
    from mdt.write import blending, blind_insert, by_name, generated_keys, normalize, overwriting
    from mdt.write import conditional as write_conditional
    from mdt.write import setting as write_setting
    from mdt.write import written_bytes as write_bytes

_MODULES = {
    "adopting": "mdt.services.adoption.adopting",
    "catalog_entry": "mdt.catalogs.entry",
    "pointers": "mdt.catalogs.pointers",
    "hudi_locks": "mdt.commit.hudi_locks",
    "hudi_metadata": "mdt.commit.hudi_metadata",
    "altering": "mdt.services.history.altering",
    "formats": "mdt.formats.registry",
    "as_of": "mdt.metadata.snapshot.as_of",
    "auto_maintenance": "mdt.services.auto_maintenance",
    "blending": "mdt.write.blending",
    "by_name": "mdt.write.by_name",
    "choice": "mdt.engines.choice",
    "check_service": "mdt.services.checking.check",
    "conditional_tasks": "mdt.engines.conditional_tasks",
    "claims": "mdt.commit.claims",
    "cleaning": "mdt.services.reclaiming.cleaning",
    "cluster_table": "mdt.services.layout.cluster_table",
    "commit_times": "mdt.plan.commit_times",
    "compaction": "mdt.services.layout.compaction",
    "create_table": "mdt.create_table",
    "given_options": "mdt.given_options",
    "engine_indexing": "mdt.engines.indexing",
    "engine_rewriting": "mdt.engines.rewriting",
    "engine_write": "mdt.engines.write",
    "imported_storage": "mdt.importing.imported_storage",
    "idempotent": "mdt.commit.idempotent",
    "index_builder": "mdt.services.indexing.index_builder",
    "index_tasks": "mdt.engines.index_tasks",
    "index_report": "mdt.services.indexing.index_report",
    "leases": "mdt.metadata.log.leases",
    "live_partitions": "mdt.metadata.snapshot.live_partitions",
    "lookup": "mdt.scan.lookup",
    "merge_on_engine": "mdt.engines.merge_on_engine",
    "metadata_table": "mdt.metadata.metadata",
    "normalize": "mdt.write.normalize",
    "order_filter": "mdt.filters.order",
    "overview": "mdt.services.reports.overview",
    "overwriting": "mdt.write.overwriting",
    "planner": "mdt.plan.planner",
    "publish": "mdt.commit.publish",
    "purge": "mdt.services.reclaiming.purge",
    "read_optimized": "mdt.metadata.snapshot.read_optimized",
    "recovery": "mdt.commit.recovery",
    "rekeying": "mdt.services.indexing.rekeying",
    "repair_service": "mdt.services.checking.repair",
    "restoring": "mdt.services.history.restoring",
    "rewriting": "mdt.services.layout.rewriting",
    "upgrading": "mdt.services.history.upgrading",
    "metadata_removal": "mdt.services.adoption.metadata_removal",
    "writer_settings": "mdt.services.adoption.writer_settings",
    "shared_metadata": "mdt.commit.shared_metadata",
    "scan_keys": "mdt.scan.key_columns",
    "scan_reader": "mdt.scan.reader",
    "scan_top": "mdt.scan.first_rows",
    "scan_use": "mdt.scan.index_use",
    "scan_warm": "mdt.scan.warm",
    "schema_alter": "mdt.schema.alter",
    "snapshot_bound": "mdt.commit.snapshot_bound",
    "spark_changes": "mdt.engines.spark.changes",
    "spark_frame": "mdt.engines.spark.frame",
    "spark_packages": "mdt.engines.spark.packages",
    "spark_schema": "mdt.engines.spark.schema",
    "spark_session": "mdt.engines.spark.session",
    "spark_source": "mdt.engines.spark.source",
    "spark_statement": "mdt.engines.spark.statement",
    "spilling": "mdt.engines.spilling",
    "format_table": "mdt.services.reports.format_table",
    "statistics": "mdt.services.indexing.statistics",
    "summary": "mdt.services.reports.summary",
    "svg": "mdt.services.reports.svg",
    "tagging": "mdt.services.history.tagging",
    "transaction": "mdt.commit.transaction",
    "transactions": "mdt.metadata.snapshot.transactions",
    "blind_insert": "mdt.write.blind_insert",
    "generated_keys": "mdt.write.generated_keys",
    "where_filter": "mdt.filters.where",
    "write_bytes": "mdt.write.written_bytes",
    "write_conditional": "mdt.write.conditional",
    "write_setting": "mdt.write.setting",
}


def __getattr__(name: str) -> ModuleType:
    """Import the module called ``name`` here, once."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(_MODULES[name])
    globals()[name] = module
    return module
