"""Hints printed by the command line name commands and options instead of Python calls."""

import pytest
from command_line import error_of

from mdt.cli.hints import for_command_line


@pytest.mark.parametrize(
    ("hint", "shown"),
    [
        ("mdt.open(path) opens it", "mdt info PATH shows it"),
        (
            "mdt.create(path, schema, key=[...]) makes one",
            "mdt create PATH --like FILE --key NAME makes one",
        ),
        ("pass it: mdt.open(path, {'mdt.cache.dir': …})", "pass it: --option mdt.cache.dir=…"),
        ("truncate() ends all rows", "mdt truncate PATH ends all rows"),
        ("t.delete_where('a > 1') deletes them", "mdt delete PATH --where … deletes them"),
        (
            "forget them: rekey(forget_deletes=True) (--forget-deletes)",
            "forget them: mdt rekey PATH --forget-deletes",
        ),
        ("beyond_hudi=True (--beyond-hudi) alters it", "--beyond-hudi alters it"),
        ("name them: by=['city', 'ts']", "name them: --by city,ts"),
        ("add ordering='ts'", "add --ordering ts"),
        (
            "storage_options={'region': 'eu'}, or AWS_REGION",
            "--storage-option region=eu, or AWS_REGION",
        ),
        ("use options={'mdt.keys.repeat': True}", "use --option mdt.keys.repeat=True"),
        ('write order_by="ts desc" or order_by=[("ts", "desc")]', "write --order-by 'ts desc'"),
        ("mdt.option_lists.options_table() lists them all", "mdt options lists them all"),
        ("did you mean the argument as_of? mdt.open(path, as_of=…)", "did you mean --as-of"),
        ("did you mean fare?", "did you mean fare?"),
        ("open it without as_of", "open it without --as-of"),
        ("read the old state with as_of, and write", "read the old state with --as-of, and write"),
        (
            "give since and until, or as_of for a snapshot",
            "give since and until, or --as-of for a snapshot",
        ),
        ("check storage_options and the environment", "check --storage-option and the environment"),
        ("did you mean fare or as_of?", "did you mean fare or as_of?"),
        ("columns: id, as_of, storage_options", "columns: id, as_of, storage_options"),
    ],
)
def test_hints_name_commands_and_options_instead_of_python_calls(hint, shown):
    assert for_command_line(hint) == shown


def test_a_hint_in_an_error_names_a_command(tmp_path):
    assert "mdt create PATH" in error_of("info", tmp_path / "none")
