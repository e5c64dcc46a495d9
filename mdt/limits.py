"""Every maximum of the table, each with its reason.

A length that comes from storage is compared with one of these before anything is allocated for it.
Units are last in the names.
"""

COMMIT_RECORD_BYTES_MAX = 256 << 20
"""Every reader that replays the log reads a record whole; more summaries than this belong in
objects of their own.
"""

FRAME_BYTES_MAX = 2 << 30
"""One object of ours in memory; above 2 GiB single puts and reads stop being one system call or
request.
"""

BASE_OBJECT_BYTES = 1 << 30
"""Pages of a base go on in another object from here on: half of the largest object, so that any
page fits behind others.
"""

HEADER_JSON_BYTES_MAX = 16 << 20
"""The JSON header is parsed into Python objects, some 20 times its size; tables go to the sections.
"""

CLAIM_BYTES_MAX = 64 << 20
"""A claim names the partitions in which its transaction writes: a million of them, of 60 bytes
each.
"""

HINT_BYTES_MAX = 1 << 10
"""The hint is one number."""

PROPERTIES_BYTES_MAX = 16 << 20
"""hoodie.properties may hold the table's schema as JSON: some 100 bytes a column."""

NAME_BYTES_MAX = 4096
"""Path of an object below the root: what Linux takes as a path; S3 takes 1,024."""

TOKEN_MAX = 2**31 - 1
"""The middle number of write tokens: Hudi reads it as a 32-bit integer."""

COUNT_MAX = 2**62
"""Rows, bytes and microseconds: sums of two fit into 64 bits."""

SECTIONS_MAX = 4096
"""Sections are one per table or per column; far more than any table has, and the list stays cheap
to check.
"""

UNFOLDED_BYTES_MAX = COMMIT_RECORD_BYTES_MAX
"""What the compressed sections of an object may unfold to, together: what a record without
compression may hold.
"""

LZ4_RATIO_MAX = 255
"""No LZ4 stream unfolds to more bytes for each of its own: a byte of a length says at most 255."""

FILE_BYTES_MAX = 1 << 48
"""Of any object: 50 times what S3 takes, and sums of many stay numbers of 64 bits."""

SEGMENT_ROWS_MAX = 2**32 - 1
"""Positions are numbers of 32 bits."""

ROWS_PER_BYTE_MAX = 64
"""Rows for each byte of a data file.  Every row has a key of its own, and every 512 rows a page
with a header of some 20 bytes in each of six columns or more, so our files have fewer than five.
"""

STREAMS_MAX = 1024
"""Streams of which a table knows the newest batch: of more, those that wrote last."""

STREAM_IDS_MAX = 4096
"""Text ids of batches that a table remembers, of all streams: eleven years of days or half a year
of hours; each checkpoint has all of them.
"""

STREAM_ID_BYTES_MAX = 256
"""A text id of a batch: all that are remembered then take at most 1 MiB."""

LIST_ITEMS_MAX = 1 << 20
"""Items of a list in a header; there are never more than files in a commit."""

INLINE_SUMMARY_BYTES_MAX = 64 << 10
"""Every reader of the log pays for inline summaries; above this one ranged read is cheaper than
carrying it along.
"""

INLINE_INDEX_BYTES_MAX = 256
"""As above, for the summaries of skipping indexes: there is one for each file and index, so the
limit is lower.
"""

SHARD_ROWS_MAX = 1 << 20
"""Rows of a shard of several segments.  A summary costs a plan some 15 µs and a writer some 0.8 ms,
whatever it holds; with more rows, reading it for a single live segment, or doing without it if it
is damaged, would cost more than that saves.
"""

SHARD_SEGMENT_ROWS_MAX = SHARD_ROWS_MAX // 2
"""Rows of a segment that may share a shard: no two larger ones fit into one."""

SHARD_BYTES_MAX = 32 << 20
"""Bytes, in memory, of the largest column of a shard of several segments: an inverted index of text
takes some 20 times as much while it is made.
"""

INDEX_COMMIT_ROWS = 4_000_000
"""Rows that an index builder covers between two commits: what a crash costs it, some seconds of
work.
"""

SUMMARIES_CACHE_BYTES_MAX = 256 << 20
"""Opened summaries kept in memory of one table, as bytes in storage: what an index keeps of a
summary in memory is about as much.
"""

SUMMARY_OPEN_BYTES = 4096
"""What an opened summary takes besides: its table of blocks."""

SEGMENTS_KNOWN_MAX = 8192
"""Segments of a snapshot of which summaries are found without a look at the metadata table."""

SEGMENTS_CACHED_MAX = 65_536
"""Segments whose description is kept in one process, about 1 KB each; beyond it the oldest are
dropped.
"""

INDEX_CACHE_BYTES_MAX = 256 << 20
"""Ranges of summaries kept in memory of one table where storage is not local; beyond it the oldest
are dropped.
"""

SEGMENTS_PER_COMMIT_MAX = 1 << 20
"""One row each in the commit record, about 100 bytes: keeps the record below its own maximum."""

TEXTS_MAX = 256
"""Named texts in a commit record, options or metadata: four times the options that there are."""

METADATA_BYTES_MAX = 64 << 10
"""Names and texts of the metadata of one commit: every checkpoint and the archive keep them."""

OPTION_BYTES_MAX = 64 << 10
"""Of the text of one option: the names of a thousand columns, of 60 bytes each.  Every checkpoint
has all options of its table.
"""

COLUMN_NAME_CHARACTERS_MAX = 255
"""Of a name of a column that Avro does not allow: people read names in lines, and each character
takes up to nine bytes in Hudi's files.
"""

SCHEMA_VERSIONS_MAX = 512
"""Every checkpoint has all versions of the schema in its header, some 10 KB each for a hundred
columns.
"""

SCHEMA_VERSIONS_BYTES_MAX = HEADER_JSON_BYTES_MAX * 3 // 4
"""What these may take of the header, so that the rest of it has room: 150 versions of a thousand
columns.
"""

ROW_GROUP_ROWS = 65_536
"""What statistics of row groups can skip.  Half or twice as many rows change neither scans nor
look-ups, which go by pages; fewer rows mean more statistics in the metadata (2 M rows of nine
columns).
"""

PAGE_BYTES = 4_096
"""What a look-up decodes of a column for one row.  With half of it 1,400 rows of 2 M take 43 ms
instead of 57, a full scan 155 ms for 1 M rows instead of 143, and files are 7 % larger; with twice
as much 70 ms, the same scan, 3 % smaller files.
"""

PAGE_ROWS_MAX = 1_024
"""Rows of a page of narrow values, which PAGE_BYTES alone would let grow to thousands.  512: 100
keys of 6 M rows of 16 columns take 18 ms instead of 20, a full scan 5 % more, and Spark, which
spends 5 µs on a page, a quarter more for narrow columns.  2,048: 29 ms, and Spark takes a tenth
less.
"""

SINGLE_PAGE_ROWS_MAX = 1_024
"""Tables up to this many rows, such as most log files, are written with one page for each column
and no page index.
"""

PAGE_VALUES_MAX = 1 << 24
"""Values in the lists of one page that a reader makes room for at once; a page of lists has a few
thousand.
"""

CLAIM_CLOCK_AHEAD_SECONDS = 3600
"""How far the clock of another writer may be ahead of ours for its claim to be believed about when
it began; above, the store says when it was put.
"""
FOREIGN_CLOCK_BEHIND_SECONDS = 600
"""By how much the clock of another Hudi writer may be behind: what a refresh looks at again of the
timeline.  Machines that keep time differ by less than a second; at a commit each second these are
1,800 names.
"""

PAGE_MAP_CACHE_BYTES_MAX = 256 << 20
"""Page maps kept in memory of one table, some 70 bytes a page; beyond it the oldest are dropped."""

FOOTER_CACHE_BYTES_MAX = 256 << 20
"""Parsed Parquet footers kept in memory of one table, 24 KB for a file of one row group and ten
columns; beyond it the oldest are dropped.
"""

DATA_FILES_MAPPED_MAX = 1_024
"""Data files kept mapped in one process for the next look-up: no descriptors, but a deleted file
takes its space until then.
"""

COMMIT_ATTEMPTS_MAX = 1_000
"""A retry repeats the whole operation; one that lost a thousand times will not win, and says so."""

UNPUBLISHED_SECONDS_MAX = 10
"""A writer that takes longer from its last look at Hudi's timeline to its commit looks again before
it publishes: another Hudi writer may have taken it for dead.
"""

LATE_LOOK_SECONDS = (0.05, 0.2, 0.75)
"""How long a reader waits before each further look for a commit record that must be there: network
file systems show what others made with a delay.
"""
LATE_SECONDS_MAX = 120
"""A commit on Hudi's timeline that is older is not late, but its record is gone; NFS keeps
attributes for 60 s at most by default.
"""

METADATA_COMPACT_RECORDS = 16
"""Commit records replayed by a new reader, at some 1 ms each; tables of more than 2,560 files wait
for more, see below.  A checkpoint of a small table costs 12 to 30 ms, so a commit pays 1 to 2 ms
for opens that take 10 to 25 ms, whenever they come.
"""

METADATA_COMPACT_DEAD_ROWS = 4_000_000
"""Metadata are compacted after so many rows died, and a quarter of those that the checkpoint has as
dead: some 8 MB of deletion vectors, which Spark's tasks are sent by the driver, and every new
reader reads with the records, until a checkpoint has them.
"""

METADATA_COMPACT_FILES_SHARE = 10
"""Metadata are compacted after the square root of a tenth of the files, 100 records at 100,000
files: a base costs some 3 µs a file to write, every record 0.5 ms at an open and 0.05 ms at a
look-up of keys, and the two costs then grow alike.
"""

METADATA_COMPACT_RECORDS_MAX = 10_000
"""Reading the log goes record by record: beyond this an open takes minutes on an object store."""

THREADS_MAX = 256
"""Threads only wait for storage; more than this wait for each other."""

WHERE_BYTES_MAX = 1 << 20
"""SQL text of one filter, the literals of long lists aside; the parser takes about a second for a
megabyte.
"""

WHERE_LISTS_BYTES_MAX = 64 << 20
"""SQL text of one filter with the literals of long lists: the most of them that are taken
(LITERALS_MAX), as texts of 64 bytes.
"""

WHERE_DEPTH_MAX = 100
"""Brackets within brackets of one filter: what works on a predicate calls itself for each, and
Python ends at 1,000 calls.
"""

LITERALS_MAX = 1_000_000
"""Values of one IN: some seconds to plan.  More is a join."""

LITERAL_DIGITS_MAX = 1_000
"""Characters of one number, and its exponent: the longest double has 767 digits.  Python refuses
integers from 4,300 on.
"""

LIKE_CHARACTERS_MAX = 16_384
"""A LIKE pattern: the regular expression made of one takes up to 50 ms and 10 MB; of 400,000
characters it cannot be made.  The words of a match.
"""

LIKE_WILDCARDS_MAX = 64
"""``%`` and ``_`` of one LIKE pattern: the time for each character of a text grows with them, to
1.5 s a megabyte at worst.
"""

LITERAL_BYTES_MAX = 4 << 20
"""One text or byte string of a filter: plans, logs and statistics of use hold and compare it again
and again.  Record keys of a megabyte are looked for.
"""

CACHES_BYTES_MAX = 2 << 30
"""What one process keeps in memory of all its tables, unless it says another number; each kind of
thing has a smaller limit of its own a table.  What is mapped counts as if it were read.
"""

KEY_MAP_CACHE_BYTES_MAX = 1 << 30
"""Key maps kept in memory of one table, so that small upserts do not read them again; beyond it the
oldest are dropped.
"""

PAST_SNAPSHOTS_CACHED_MAX = 8
"""States before the newest that one process keeps: each shares its checkpoint, and has what was
added since of its own.
"""

FOOTERS_OF_EXECUTOR_BYTES = 64 << 20
"""Footers of files on far stores that an executor of Spark keeps, unless a session says another
number: some ten thousand files.
"""

FAR_OBJECT_WHOLE_BYTES_MAX = 1 << 20
"""An object store sends so much hardly later than its first byte: what is smaller is read in one
request, and written beside others.
"""

VECTORS_OF_EXECUTOR_BYTES = 64 << 20
"""Deletion vectors that an executor of Spark keeps, unless a session says another number: of a
million random positions some fifty.
"""

INLINE_VECTOR_BYTES_MAX = 256
"""A deletion vector up to this size goes from the driver to Spark's tasks by itself: 25 MB for
100,000 files.  Of larger ones a reference goes, which adds some 300 bytes to a task of one file,
and costs no CPU that could be seen on a local disk, but a far store may ask 30 ms for the bytes.
"""

INLINE_VECTORS_PAGE_BYTES_MAX = FAR_OBJECT_WHOLE_BYTES_MAX
"""None does whose page of the metadata is larger than this: a driver would read the page for them.
"""

LISTED_FILES_MAX = 250_000
"""Files of the versions of one table that Spark's planner remembers: the last two versions, and up
to eight as long as they have no more files (`java/plan/FileLists.java`).
"""

DIRECTORIES_OPEN_MAX = 256
"""Directories with an LMDB file, of pages or of keys, that one process has open; each takes a
descriptor and address space.
"""

OPEN_TABLES_MAX = 16
"""Tables that one process keeps open for queries of Spark that name them again: what they hold in
caches has a limit of its own.
"""

OPEN_FILES_MAX = 250_000
"""Files that these tables have together, unless one has more by itself: what is kept of each file,
beside the caches, takes some 400 bytes of the process and 550 of the JVM, and twice as much after a
commit.
"""

RELATIONS_OF_TABLE_MAX = 2
"""Relations of Spark that each of them keeps: of the sessions, and the ways to read, that asked
last.
"""

ARCHIVE_RECORDS_MIN = 64
"""Records leave the log so many at a time: two checkpoints apart, so that one object of the archive
is written for many records.
"""

CLEAN_COMMITS_MIN = 16
"""A table that cleans itself does so at most once in so many commits: a cleaning costs as much as a
small commit.
"""

LEASE_BYTES_MAX = 1 << 10
"""A lease is two numbers."""

ARCHIVE_ROWS_MERGED_MAX = 1 << 19
"""Records of one object of the archive, at some 200 bytes each before they are compressed: half of
what an object may unfold to.
"""

RECORDS_CACHE_BYTES_MAX = 64 << 20
"""Of commit records kept in memory of one table, of some 50 KB each if they are small: all that a
table keeps readable by default, so that a cleaning, which asks for all of them five times, does not
decode them again; that took forty times as long as a small commit.
"""

REFERRED_CACHE_BYTES_MAX = 256 << 20
"""Of paths of objects to which tagged states refer, some 100 bytes each."""

KEY_PARTS_OPEN_MAX = 64
"""Parts of the key index that one process keeps open: mapping one of 2 M keys again costs 0.1 ms,
as much as the look-up.
"""

SUMMARY_FILES_OPEN_MAX = 64
"""Objects of summaries that stay mapped for each table: every commit makes one, and few are needed
twice.
"""

ATTACHED_BYTES_MIN = 32 << 20
"""Of a large commit an object of attachments is stored as soon as it has so many bytes, while files
are still made: they need not all be in memory.
"""

COPIED_OBJECT_BYTES_MAX = 1 << 16
"""An object of the metadata that is no larger is copied when it is opened, which takes 4
microseconds more than to map it alone (30 and 26).
"""

MAPPINGS_WATCHED_MAX = 256
"""Mapped objects of a table's metadata whose sizes are looked at before each operation, two
microseconds each.
"""

METADATA_CACHE_BYTES_MAX = 512 << 20
"""Pages and statistics of one checkpoint kept in memory: two columns of statistics of 5 M files, or
all pages of a remote table of 1 M files with five.  Beyond it the oldest are dropped.  Pages that
are mapped take no memory of their own.
"""

BATCH_ROWS_MAX = 65_536
"""Rows of one record batch of a result: consumers copy or convert whole batches, and memory in
flight stays small.
"""

LIMIT_ROWS_MAX = (1 << 63) - 1
"""More rows than any table has; a larger ``limit`` would only leave the range of machine words."""

SPARK_LIMIT_MAX = (1 << 31) - 1
"""Spark counts the rows of a limit as a 32-bit number."""

STORE_RETRIES_MAX = 8
"""Tries of one request to a store on the network after the first, each after a longer pause,
together some 15 seconds.
"""

STORE_RETRY_SECONDS = 30
"""No request is tried again later than this, so that a wrong endpoint or missing credentials are
told while somebody waits.
"""

STORE_TIMEOUT_SECONDS = 60
"""One request with its answer: a full base file (120 MiB) at 2 MiB a second."""

OPERATIONS_AT_ONCE_MAX = 16
"""Requests of one process to an object store: as many as a commit or a look-up of a few keys has
that do not depend on each other.
"""

LOOKED_ONCE_ROWS_MAX = 100_000
"""Rows that are made ready in less time than an object store takes to say what has happened
meanwhile.
"""

FAR_FILES_READ_AT_ONCE = 8
"""Files that a scan of an object store reads at the same time where there are fewer cores: it waits
for most of the time.
"""

FAR_RANGE_BYTES = 8 << 20
"""Column chunks that stand side by side are asked of an object store in ranges of so many bytes:
one connection is slow, and each request has its price.
"""

OPERATIONS_WAITING_MAX = 32
"""Uploads that wait for a thread hold their bytes in memory."""

OWN_FILE_BYTES_MAX = 16 << 20
"""One file in the user's cache directory that is read whole: the classes that Spark's JVM is given
take some 300 KB.
"""

JARS_MAX = 8
"""Compiled classes kept for one user: one file for each version of this package, of Spark and of
Java that he uses beside others.
"""

REWRITTEN_BYTES_MIN = 1 << 16
"""A base file of so many bytes costs no more to rewrite than a new one costs beside it: it is
rewritten for any insert, without a warning.
"""
