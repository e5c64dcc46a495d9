"""The README and all other pages: their code blocks run, and their links have targets."""

from doctest import ELLIPSIS, OutputChecker
from itertools import zip_longest

import documents
import pytest
import s3
from documents import Block

NOT_RUN = {
    (
        "docs/storage.md",
        't = mdt.open("gs://trips-bucket/trips", storage_options={"service_account": "key.json"})',
    ): (
        "needs an account of Google's; tests/stores/test_store_options.py and test_s3.py try names"
        " and errors"
    ),
    (
        "docs/storage.md",
        (
            't = mdt.open("az://container/trips", storage_options={"account_name": "me",'
            ' "account_key": "bm90IGEga2V5"})'
        ),
    ): (
        "needs an account of Azure's; tests/stores/test_store_options.py and test_s3.py try names"
        " and errors"
    ),
}
"""(page, first line of a block) -> why the block cannot run here.  All other blocks are run."""

TOURS = "docs/start/"
"""Pages that show the output of each step."""
PAGES = [page.relative_to(documents.ROOT).as_posix() for page in documents.pages()]
BLOCKS = {
    name: documents.blocks(name, (documents.ROOT / name).read_text(encoding="utf-8"))
    for name in PAGES
}
WITH_CODE = [
    name
    for name, blocks in BLOCKS.items()
    if any(b.language not in documents.SHOWN_ONLY for b in blocks)
]


@pytest.fixture(scope="module")
def s3_endpoint():
    """A mock server in place of S3."""
    with s3.mock_server() as endpoint:
        yield endpoint


def first_line(block):
    return block.code.partition("\n")[0]


def run_all(blocks, folder):
    """Run all blocks that can run, in order, and return their number.

    On a tour, a block of text after a block of Python is the expected output.
    """
    namespace = {"__name__": "__main__"}
    runnable = [
        (block, after)
        for block, after in zip_longest(blocks, blocks[1:])
        if block.language not in documents.SHOWN_ONLY
        and (block.page, first_line(block)) not in NOT_RUN
    ]
    for block, after in runnable:
        if block.language == "sh":
            documents.run_shell(block, folder)
            continue
        printed = documents.run_python(block, namespace)
        if block.page.startswith(TOURS) and after is not None and after.language == "text":
            shown, printed = f"{after.code}\n", f"{printed.rstrip()}\n"
            assert OutputChecker().check_output(shown, printed, ELLIPSIS), f"{after}: {printed}"
    return len(runnable)


@pytest.mark.parametrize("page", WITH_CODE)
def test_every_block_runs(page, tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    if any("pyspark" in block.code for block in BLOCKS[page] if block.language == "python"):
        # from here on, SparkSession.builder.getOrCreate() returns this session
        request.getfixturevalue("spark")
    if any("s3://" in block.code for block in BLOCKS[page]):
        endpoint = request.getfixturevalue("s3_endpoint")
        for name, value in {**s3.ENVIRONMENT, "AWS_ENDPOINT_URL": endpoint}.items():
            monkeypatch.setenv(name, value)
    assert run_all(BLOCKS[page], tmp_path)


@pytest.mark.parametrize("page", PAGES)
def test_every_block_has_a_language_that_is_run_or_only_shown(page):
    unknown = [
        str(b) for b in BLOCKS[page] if b.language not in documents.SHOWN_ONLY | {"python", "sh"}
    ]
    assert not unknown, (
        f"{unknown}: call it python, sh, or {' or '.join(sorted(documents.SHOWN_ONLY))}"
    )


def test_blocks_that_are_not_run_exist_and_have_a_reason():
    first_lines = {
        (block.page, first_line(block)) for blocks in BLOCKS.values() for block in blocks
    }
    assert set(NOT_RUN) <= first_lines
    assert all(NOT_RUN.values())


def test_the_readme_has_blocks_of_python_and_of_the_shell():
    assert {block.language for block in BLOCKS["README.md"]} >= {"python", "sh"}


@pytest.mark.parametrize("page", PAGES)
def test_links_have_existing_targets(page):
    assert not list(documents.dead_links(documents.ROOT / page))


# The runner itself


PAGE = """# One & two

```python
x = 1
```
Text with `[code](nowhere.md)`.
````text
```sh
```
````
```sh
mdt --version
```
[there](page.md#one--two) [here](#one--two) [off](https://example.org/x) [gone](gone.md) ![plot](plot.png) [no](#three)
"""


def test_blocks_are_parsed_with_line_language_and_code():
    parsed = [(b.line, b.language, b.code) for b in documents.blocks("page.md", PAGE)]
    assert parsed == [
        (4, "python", "x = 1"),
        (8, "text", "```sh\n```"),
        (12, "sh", "mdt --version"),
    ]
    with pytest.raises(ValueError, match=r"page.md:1: .*never closed"):
        documents.blocks("page.md", "```python\nx = 1\n")


def test_dead_links_and_anchors_are_reported(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE, encoding="utf-8")
    assert list(documents.dead_links(page)) == ["gone.md", "plot.png", "#three"]


def test_the_printed_output_of_a_tour_must_match_the_shown_text(tmp_path):
    steps = [
        Block("docs/start/page.md", 2, "python", "print('one', 1)\nprint(2)"),
        Block("docs/start/page.md", 7, "text", "one 1\n..."),
    ]
    assert run_all(steps, tmp_path) == 1
    with pytest.raises(AssertionError, match="two"):
        run_all([Block("docs/start/page.md", 2, "python", "print('two')"), steps[1]], tmp_path)


def test_blocks_share_a_namespace_and_an_error_has_the_line_of_the_page(tmp_path):
    blocks = [
        Block("page.md", 4, "python", "x = 1"),
        Block("page.md", 9, "python", "assert x == 1\nx.y"),
    ]
    with pytest.raises(AttributeError) as caught:
        run_all(blocks, tmp_path)
    assert (caught.traceback[-1].frame.code.raw.co_filename, caught.traceback[-1].lineno + 1) == (
        "page.md",
        10,
    )


WRONG_COMMANDS = {
    "a command that nobody can try": "rm -rf table",
    "an unknown make target": "make nonsense",
    "an unknown extra": "pip install 'pyspark-mdt[nonsense]'",
    "another project": "pip install something-else",
    "an unknown command of mdt": "mdt nonsense",
    "an option that mdt lacks": "mdt scan t --nonsense",
    "a failure before a pipe": "mdt nonsense | cat",
    "a module that is not there": "python -m nonsense",
    "a script that is not there": "python tests/nonsense.py",
    "a test that is not there": "MDT_FLIPS=1:2 python -m pytest tests/house/test_nonsense.py",
    "tests that no name fits": "python -m pytest tests/house/test_tidy.py -k nonsense",
}


@pytest.mark.parametrize("command", WRONG_COMMANDS.values(), ids=WRONG_COMMANDS.keys())
def test_a_page_may_not_show_an_invalid_command(command, tmp_path):
    with pytest.raises(AssertionError):
        documents.run_shell(Block("page.md", 1, "sh", command), tmp_path)


def test_comments_continued_lines_and_pipes_in_shell_blocks_are_run(tmp_path):
    lines = (
        "# nothing\n\nmdt \\\n  --help | grep -q Hudi   # the first line\npip install pyspark-mdt"
    )
    documents.run_shell(Block("page.md", 1, "sh", lines), tmp_path)
