"""Every limit of the table, with its reason.

A length read from storage is compared with a limit before memory is allocated for it. Names end
with their unit.
"""

COMMIT_RECORD_BYTES_MAX = 256 << 20
"""Readers that replay the log load each record as a whole. More summaries than this need objects of
their own.
"""

FRAME_BYTES_MAX = 2 << 30
"""One object of ours in memory. Above 2 GiB a put or read needs more than one system call or
request.
"""

BASE_OBJECT_BYTES = 1 << 30
"""Size at which the pages of a checkpoint continue in another object. It is half of the largest
object, so that any page fits behind the others.
"""

HEADER_JSON_BYTES_MAX = 16 << 20
"""The JSON header, which takes about 20 times its size as Python objects. Tables belong into
sections.
"""

CLAIM_BYTES_MAX = 64 << 20
"""A claim, which names the partitions that its transaction writes: a million names of 60 bytes."""

ICEBERG_METADATA_BYTES_MAX = 256 << 20
"""Metadata of a version of Iceberg: 1,000 snapshots of 500 bytes, each with a schema of a thousand
columns of 80 bytes at most, have 80 MB. Decoded, they take about ten times as much.
"""

ICEBERG_MANIFEST_BYTES_MAX = 512 << 20
"""A manifest or manifest list of Iceberg. 256 files with statistics of 10,000 columns have 400 MB,
and a list of the manifests of 5 M files has 10 MB.
"""

ICEBERG_NUMBER_MAX = (1 << 53) - 1
"""Numbers of rows and commits in metadata of Iceberg, which JSON keeps exactly."""

HINT_BYTES_MAX = 1 << 10
"""The hint is a single number."""

PROPERTIES_BYTES_MAX = 16 << 20
"""hoodie.properties, which may hold the schema as JSON, about 100 bytes a column."""

NAME_BYTES_MAX = 4096
"""The path of an object below the root. This is the limit of Linux for paths; S3 allows 1,024. It
also limits new tags, comments of savepoints and specifications of indexes.
"""

TOKEN_MAX = 2**31 - 1
"""The middle number of write tokens, which Hudi reads as a 32-bit integer."""

COUNT_MAX = 2**62
"""Rows, bytes and microseconds. The sum of two fits into 64 bits."""

SECTIONS_MAX = 4096
"""Sections, one per table or column. Far above real tables, and cheap to check."""

UNFOLDED_BYTES_MAX = COMMIT_RECORD_BYTES_MAX
"""Total decompressed size of an object's sections. Equal to the limit of uncompressed records."""

LZ4_RATIO_MAX = 255
"""Largest possible LZ4 expansion, because a length byte stands for at most 255 bytes."""

FILE_BYTES_MAX = 1 << 48
"""Any object: 50 times the limit of S3, and sums of many fit into 64 bits."""

SEGMENT_ROWS_MAX = 2**32 - 1
"""Positions are 32-bit numbers."""

ROWS_PER_BYTE_MAX = 64
"""Rows for each byte of a data file. Each row has a unique key, and six or more columns have a page
header of about 20 bytes every 512 rows, so our files have fewer than five rows a byte.
"""

STREAMS_MAX = 1024
"""Streams whose newest batch a table remembers. The streams that wrote last are retained."""

STREAM_IDS_MAX = 4096
"""Text ids of batches that a table remembers, for all streams: eleven years of days or half a year
of hours. Every checkpoint stores all of them.
"""

STREAM_ID_BYTES_MAX = 256
"""A text id of a batch. All remembered ids take at most 1 MiB."""

LIST_ITEMS_MAX = 1 << 20
"""Items of a list in a header, which never exceeds the files of a commit."""

INLINE_SUMMARY_BYTES_MAX = 64 << 10
"""Inline summaries, which every reader of the log loads. Above this size a ranged read is
cheaper.
"""

INLINE_INDEX_BYTES_MAX = 256
"""Inline summaries of skipping indexes. The limit is lower because each file and index has a
summary.
"""

SHARD_ROWS_MAX = 1 << 20
"""Rows of a shard with several segments.

A summary costs a plan about 15 µs and a writer about 0.8 ms, whatever its size. With more rows,
reading it for a single live segment, or losing it to damage, would cost more than it saves.
"""

SHARD_SEGMENT_ROWS_MAX = SHARD_ROWS_MAX // 2
"""Rows of a segment that may share a shard. Two larger segments do not fit into a shard."""

SHARD_BYTES_MAX = 32 << 20
"""Bytes in memory of the largest column of a shard with several segments. Building an inverted text
index takes about 20 times as much.
"""

INDEX_COMMIT_ROWS = 4_000_000
"""Rows that an index builder covers between two commits. A crash loses the work since the last
commit, a few seconds.
"""

SUMMARIES_CACHE_BYTES_MAX = 256 << 20
"""Opened summaries in memory per table, as bytes on storage. Their size in memory is similar."""

SUMMARY_OPEN_BYTES = 4096
"""Overhead of an opened summary: its table of blocks."""

SEGMENTS_KNOWN_MAX = 8192
"""Segments of a snapshot whose summaries are found without reading the metadata table."""

SEGMENTS_CACHED_MAX = 65_536
"""Segment descriptions cached per process, about 1 KB each. The oldest are dropped."""

INDEX_CACHE_BYTES_MAX = 256 << 20
"""Ranges of summaries in memory per table on remote storage. The oldest are dropped."""

IMPORTED_FILES_PER_RECORD_MAX = 20_000
"""Files that a record imports, with statistics of a few dozen columns each, so that the record
stays below its limit.
"""

SEGMENTS_PER_COMMIT_MAX = 1 << 20
"""Segments per commit, about 100 bytes each in its record, which keeps the record below its
limit.
"""

TEXTS_MAX = 256
"""Named texts in a commit record, such as options or metadata: four times the number of options."""

METADATA_BYTES_MAX = 64 << 10
"""Names and texts in the metadata of a commit. Every checkpoint and the archive store them."""

OPTION_BYTES_MAX = 64 << 10
"""The text of an option: names of a thousand columns, 60 bytes each. Every checkpoint stores all
options of its table.
"""

COLUMN_NAME_CHARACTERS_MAX = 255
"""Column names that Avro does not allow. Users read names in lines, and Hudi's files take up to
nine bytes for each character.
"""

SCHEMA_VERSIONS_MAX = 512
"""Versions of the schema. Every checkpoint stores all of them in its header, about 10 KB each for a
hundred columns.
"""

SCHEMA_VERSIONS_BYTES_MAX = HEADER_JSON_BYTES_MAX * 3 // 4
"""Share of the header for schema versions: 150 versions of a thousand columns."""

ROW_GROUP_ROWS = 65_536
"""Granularity of row-group statistics. Measured with 2 M rows of nine columns: half or twice as
many rows change neither scans nor look-ups, which read pages, and fewer rows add statistics to the
metadata.
"""

PAGE_BYTES = 4_096
"""Bytes of a column that a look-up decodes to read a row.

2,048 bytes: 1,400 rows of 2 M take 43 ms instead of 57, a full scan of 1 M rows 155 ms instead of
143, and files are 7 % larger. 8,192 bytes: 70 ms, the same scan, and files are 3 % smaller.
"""

PAGE_ROWS_MAX = 1_024
"""Rows of a page of narrow values, which PAGE_BYTES alone would let grow to thousands.

512 rows: 100 keys of 6 M rows of 16 columns take 18 ms instead of 20, a full scan 5 % more, and
Spark, which spends 5 µs on a page, a quarter more for narrow columns. 2,048 rows: 29 ms, and Spark
takes a tenth less.
"""

SINGLE_PAGE_ROWS_MAX = 1_024
"""Files up to this many rows, such as most log files, have a single page per column and no page
index.
"""

PAGE_VALUES_MAX = 1 << 24
"""Values in the lists of a page that a reader allocates at once. A page of lists has a few
thousand.
"""

INSTANT_BYTES_MAX = 256 << 20
"""The content of an instant of any Hudi writer: 250,000 files as JSON, 600,000 as Avro. Python
objects take about 20 times its size.
"""

AVRO_SCHEMA_BYTES_MAX = 1 << 20
"""The schema in an instant of any Hudi writer. Hudi's largest has 4 KB."""

AVRO_SCHEMA_DEPTH_MAX = 64
"""Nested types in such a schema, which are decoded recursively. Hudi's deepest has 12."""

LOG_FILE_BYTES_MAX = 2 << 30
"""A log file of any Hudi writer, which is read as a whole. Hudi begins another one at 1 GiB."""

HISTORY_ROWS_MAX = 1 << 22
"""Instants in a file of Hudi's history: one a minute for eight years."""

HISTORY_COLUMN_BYTES_MAX = 256 << 20
"""Uncompressed times in a file of Hudi's history, 20 bytes each and two for each instant."""

ARCHIVED_BYTES_MAX = 256 << 20
"""Instants in memory that are moved to Hudi's archive at once, unless a single one has more."""

HISTORY_BYTES_MAX = 1 << 30
"""Uncompressed rows of a file of Hudi's history that is merged with others. Hudi does not merge
more.
"""

HFILE_INDEX_BYTES_MAX = 64 << 20
"""The root index of an HFile with all that is behind it, which is read at an open. Hudi's has an
entry of about 60 bytes for each block of 1 MiB.
"""

HFILE_INFO_BYTES_MAX = 4 << 20
"""The file info of an HFile: an Avro schema of at most 1 MiB, and a few keys."""

HFILE_LEVELS_MAX = 16
"""Levels of the index of an HFile. A level has at least twice as many entries as the one above."""

HFILE_BLOCK_BYTES_MAX = 256 << 20
"""A block of an HFile. Hudi's have 1 MiB or a single entry, whose largest is a listing: 100 bytes
for each file of a partition.
"""

HFILE_ENTRIES_BYTES_MAX = 1 << 30
"""Blocks of an HFile in memory at once. Arrow arrays take as much again."""

HUDI_RECORD_INDEX_ROWS_MAX = 5_000_000
"""Rows of a table with a record index of Hudi that our commits keep. It is made in memory, with
about 150 bytes for each row, and read when it is merged, with about 90 and the key. The index of
rows with keys of 100 bytes has less than HFILE_ENTRIES_BYTES_MAX.
"""

LOCATIONS_BYTES_MAX = (1 << 31) - 1
"""Record keys with their file groups that are entered in Hudi's record index at once. Offsets of
Arrow's strings have 31 bits. 5,000,000 rows have 400 bytes each.
"""

INDEX_CHANGES_MAX = 100_000
"""Records in the log files of a file group of one of Hudi's indexes. All are looked up in its base
file once for each state, which takes a second.
"""

SECONDARY_KEYS_MAX = 100_000
"""Record keys that a secondary index of Hudi has for the values of a filter. With more, reading
files by their bounds costs less than looking the keys up.
"""

CLAIM_CLOCK_AHEAD_SECONDS = 3600
"""Clock skew up to which the start time in another writer's claim is trusted. Beyond it, the
storage's modification time is used.
"""
FOREIGN_CLOCK_BEHIND_SECONDS = 600
"""Clock skew of other Hudi writers: a refresh reads this much of the timeline again. Synchronized
clocks differ by less than a second. With a commit every second this is 1,800 names.
"""

FOREIGN_ZONES_BEHIND_SECONDS = 48 * 3600
"""The same for tables with commits of other writers, whose instants may be in their local time, up
to 26 hours from ours.
"""

PAGE_MAP_CACHE_BYTES_MAX = 256 << 20
"""Page maps in memory per table, about 70 bytes a page. The oldest are dropped."""

FOOTER_BYTES_MAX = 256 << 20
"""Parquet footer of another writer's file. 1,000 columns in 1,000 row groups have 100 MB."""

IMPORT_FOLDER_SLICES_MIN = 1_000
"""File groups from which what was imported from another writer's table stays in the user's cache
directory. A smaller table is imported within half a second.
"""

IMPORT_FOLDER_RECORDS_MAX = 1_000
"""Records of the log in such a directory. A table with more is imported anew when it is opened."""

TABLE_FOLDER_WAIT_SECONDS = 20.0
"""Time to wait for another process that imports into such a directory, or has been stopped there.
Afterwards the table is imported without it.
"""

MERGED_FILES_KEPT_SECONDS = 3_600
"""Time for which merged files of another writer's table are kept after a newer state replaces them.
A scan that takes longer finds them missing.
"""

FOOTER_CACHE_BYTES_MAX = 256 << 20
"""Parsed Parquet footers in memory per table, 24 KB for a file with a row group and ten columns.
The oldest are dropped.
"""

DATA_FILES_MAPPED_MAX = 1_024
"""Data files that a process keeps mapped for look-ups. Mappings need no descriptors, but a deleted
file occupies its space until it is unmapped.
"""

COMMIT_ATTEMPTS_MAX = 1_000
"""Attempts of a commit. Each retry repeats the whole operation, and a thousand failures will not
end in success.
"""

HEARTBEAT_SECONDS = 30
"""Time between heartbeats beside Hudi's writers. They take a transaction for dead after 120 s
without one, by default.
"""

HEARTBEAT_AGE_SECONDS_MAX = 150
"""Age of a heartbeat after which a writer of Hudi is dead. By default it renews its heartbeat every
60 s, and may miss two.
"""

STARTING_SECONDS_MAX = 600
"""Time after its request within which a writer of Hudi has read the timeline, unless it has failed.
It usually takes some seconds.
"""

LOCK_POLL_SECONDS = 0.05
LOCK_POLL_SECONDS_MAX = 1.0
"""First and longest time between attempts to take a lock that another writer holds."""

LOCK_VALID_SECONDS = 300
"""Time after which a storage-based lock expires, unless it is renewed. Hudi's default."""

LOCK_CLOCK_SKEW_SECONDS = 0.5
"""A storage-based lock is only broken this long after it has expired, as Hudi does."""

LOCK_BYTES_MAX = 1 << 16
"""Maximum size of a lock file. Hudi's contain a stack trace."""

UNPUBLISHED_SECONDS_MAX = 10
"""Seconds between a writer's last look at Hudi's timeline and its commit. A slower writer looks
again before it publishes, because another Hudi writer may have rolled it back.
"""

LATE_LOOK_SECONDS = (0.05, 0.2, 0.75)
"""Pauses before a reader looks again for a commit record that must exist. Network file systems show
files of other clients with a delay.
"""
LATE_SECONDS_MAX = 120
"""Age after which a commit on Hudi's timeline without a record is lost, not late. NFS caches
attributes for at most 60 s by default.
"""

METADATA_COMPACT_RECORDS = 16
"""Commit records that a new reader replays, about 1 ms each. Tables of more than 2,560 files wait
for more, see METADATA_COMPACT_FILES_SHARE. A checkpoint of a small table costs 12 to 30 ms, so 1 to
2 ms a commit buy opens of 10 to 25 ms.
"""

METADATA_COMPACT_DEAD_ROWS = 4_000_000
"""The metadata are compacted after this many rows were deleted or replaced and at least a quarter
of the dead rows of the checkpoint. These are about 8 MB of deletion vectors, which the driver sends
to Spark's tasks and every new reader loads until a checkpoint has them.
"""

METADATA_COMPACT_FILES_SHARE = 10
"""The metadata are compacted after the square root of a tenth of the files, in records: 100 at
100,000 files. A checkpoint costs about 3 µs a file, each record 0.5 ms at an open and 0.05 ms at a
key look-up, so both costs grow alike.
"""

METADATA_COMPACT_RECORDS_MAX = 10_000
"""The log is read record by record. Beyond this an open takes minutes on an object store."""

THREADS_MAX = 256
"""Threads wait for storage. More than this would wait for each other."""

WHERE_BYTES_MAX = 1 << 20
"""SQL text of a filter, without the literals of long lists. Parsing a megabyte takes about a
second.
"""

WHERE_LISTS_BYTES_MAX = 64 << 20
"""SQL text of a filter with the literals of long lists: LITERALS_MAX texts of 64 bytes."""

WHERE_DEPTH_MAX = 100
"""Nested brackets of a filter. Predicates are processed recursively, and Python allows 1,000
calls.
"""

LITERALS_MAX = 1_000_000
"""Values of an IN list, which take a few seconds to plan. Use a join for more."""

LITERAL_DIGITS_MAX = 1_000
"""Characters of a number, and its exponent. The longest double has 767 digits, and Python refuses
integers of 4,300.
"""

LIKE_CHARACTERS_MAX = 16_384
"""Characters of a LIKE pattern, whose regular expression takes up to 50 ms and 10 MB, and fails at
400,000. Also the words of a match.
"""

LIKE_WILDCARDS_MAX = 64
"""``%`` and ``_`` in a LIKE pattern. The time per character grows with them, up to 1.5 s a
megabyte.
"""

LITERAL_BYTES_MAX = 4 << 20
"""A text or byte string in a filter. Plans, logs and usage counts store and compare it repeatedly.
Record keys may have a megabyte.
"""

CACHES_BYTES_MAX = 2 << 30
"""Default memory for the caches of all tables of a process. Each kind of cache also has a smaller
limit per table. Mapped bytes count as if they were read.
"""

KEY_MAP_CACHE_BYTES_MAX = 1 << 30
"""Key maps in memory per table, so that small upserts do not read them again. The oldest are
dropped.
"""

TWINS_CACHED_MAX = 4096
"""Twins of log files whose blocks a process remembers, at about a kilobyte each."""

DERIVED_CACHE_BYTES_MAX = 64 << 20
"""Metadata of other formats in memory per table, from which each commit derives the next version.
Decoded, they take up to three times as much.
"""

DELTA_CHECKPOINT_BYTES_MAX = 2 << 30
"""Uncompressed columns of a Delta checkpoint: more than 2 million files of a kilobyte each."""

DELTA_CHECKPOINT_ROWS_MAX = 4_000_000
"""Rows of a Delta checkpoint. A row of nulls takes up to 300 bytes in memory, and none in a
file.
"""

PAST_SNAPSHOTS_CACHED_MAX = 8
"""Past snapshots that a process caches. They share their checkpoint and differ in the records after
it.
"""

FOOTERS_OF_EXECUTOR_BYTES = 64 << 20
"""Default size of a Spark executor's cache of footers of remote files, about ten thousand files."""

FAR_OBJECT_WHOLE_BYTES_MAX = 1 << 20
"""Objects up to this size are read in a single request and written in parallel: transferring them
takes hardly longer than the first byte.
"""

VECTORS_OF_EXECUTOR_BYTES = 64 << 20
"""Default size of a Spark executor's cache of deletion vectors, about fifty with a million random
positions.
"""

INLINE_VECTOR_BYTES_MAX = 256
"""Deletion vectors up to this size are sent from the driver to Spark's tasks, 25 MB for 100,000
files. Larger vectors are sent as references, which add about 300 bytes to a task of one file and no
measurable CPU on a local disk. A remote store may take 30 ms to deliver the bytes.
"""

INLINE_VECTORS_PAGE_BYTES_MAX = FAR_OBJECT_WHOLE_BYTES_MAX
"""No vector is sent inline if its metadata page is larger than this, because the driver would read
the page for it.
"""

LISTED_FILES_MAX = 250_000
"""Files of all versions of a table that Spark's planner caches: the last two versions, and up to
eight within this limit (`java/plan/FileLists.java`).
"""

DIRECTORIES_OPEN_MAX = 256
"""Directories with an LMDB file that a process keeps open. Each takes a descriptor and address
space.
"""

OPEN_TABLES_MAX = 16
"""Tables that a process keeps open for Spark queries. Their caches have limits of their own."""

OPEN_FILES_MAX = 250_000
"""Files of these tables together, unless a single table has more. Besides the caches, a file takes
about 400 bytes of the process and 550 of the JVM, and twice as much after a commit.
"""

RELATIONS_OF_TABLE_MAX = 2
"""Spark relations cached per table, for the sessions and ways to read that were used last."""

ARCHIVE_RECORDS_MIN = 64
"""Records leave the log in batches of at least this size, so that an object of the archive holds
many records.
"""

CLEAN_COMMITS_MIN = 16
"""Commits between two automatic cleanings. A cleaning costs as much as a small commit."""

LEASE_BYTES_MAX = 1 << 10
"""A lease has two numbers."""

ARCHIVE_ROWS_MERGED_MAX = 1 << 19
"""Records of an object of the archive, about 200 bytes each uncompressed: half of the limit for
decompression.
"""

RECORDS_CACHE_BYTES_MAX = 64 << 20
"""Commit records in memory per table, about 50 KB each for small commits. A cleaning requests all
readable records five times, and decoding them each time took forty times as long as a small commit.
"""

REFERRED_CACHE_BYTES_MAX = 256 << 20
"""Paths of objects that tagged snapshots refer to, about 100 bytes each."""

KEY_PARTS_OPEN_MAX = 64
"""Parts of the key index that a process keeps open. Mapping a part of 2 M keys again costs 0.1 ms,
as much as the look-up.
"""

SUMMARY_FILES_OPEN_MAX = 64
"""Summary objects mapped per table. Every commit makes an object, and few are needed twice."""

ATTACHED_BYTES_MIN = 32 << 20
"""Size at which attachments of a large commit are stored while files are still written, to limit
memory.
"""

COPIED_OBJECT_BYTES_MAX = 1 << 16
"""Metadata objects up to this size are copied on open, which takes 30 µs. Mapping takes 26 µs."""

MAPPINGS_WATCHED_MAX = 256
"""Mapped metadata objects whose sizes are checked before each operation, 2 µs each."""

METADATA_CACHE_BYTES_MAX = 512 << 20
"""Pages and statistics of a checkpoint in memory: two columns of statistics of 5 M files, or all
pages of a remote table of 1 M files with five. The oldest are dropped. Mapped pages take no memory.
"""

BATCH_ROWS_MAX = 65_536
"""Rows of a record batch of a result. Consumers copy or convert whole batches."""

LIMIT_ROWS_MAX = (1 << 63) - 1
"""The largest useful ``limit``, which fits into a 64-bit integer."""

SPARK_LIMIT_MAX = (1 << 31) - 1
"""Spark's limits are 32-bit integers."""

STORE_RETRIES_MAX = 8
"""Retries of a request to a remote store, with growing pauses of about 15 seconds in total."""

STORE_RETRY_SECONDS = 30
"""Time after which a request is not retried, so that a wrong endpoint or missing credentials are
reported soon.
"""

STORE_TIMEOUT_SECONDS = 60
"""A request with its response: a full base file (120 MiB) at 2 MiB a second."""

OPERATIONS_AT_ONCE_MAX = 16
"""Concurrent requests of a process to an object store. A commit or a look-up of a few keys has this
many independent requests.
"""

LOOKED_ONCE_ROWS_MAX = 100_000
"""Rows that are prepared faster than an object store can report new commits."""

FAR_FILES_READ_AT_ONCE = 8
"""Files that a scan of an object store reads concurrently, even with fewer cores, because it mostly
waits.
"""

FAR_RANGE_BYTES = 8 << 20
"""Size of ranged reads of adjacent column chunks on an object store. A single connection is slow,
and each request has a cost.
"""

OPERATIONS_WAITING_MAX = 32
"""Uploads that wait for a thread. Each holds its bytes in memory."""

OWN_FILE_BYTES_MAX = 16 << 20
"""A file in the user's cache directory that is read as a whole. The classes for Spark's JVM take
about 300 KB.
"""

JARS_MAX = 8
"""JARs of compiled classes per user, one for each combination of this package, Spark and Java."""

REWRITTEN_BYTES_MIN = 1 << 16
"""Base files up to this size are rewritten for any insert, without a warning, because a new file
beside them would cost as much.
"""
