"""The file views.sql beside the documents of a fleet: views for DuckDB, which reads JSON itself."""

import os
import tempfile

NAME = "views.sql"
SQL = """-- Views over the documents in this folder. Use: cd into it, then: duckdb -init views.sql
-- SELECT * FROM builds;  SELECT * FROM hosts;  SELECT * FROM growth;
CREATE OR REPLACE VIEW documents AS
  SELECT filename AS document, content::JSON AS doc
  FROM read_text('*.json') WHERE json_valid(content);
CREATE OR REPLACE VIEW cores AS
  SELECT document, doc->>'$.fleet.core' AS core, regexp_extract(doc->>'$.fleet.core', '^(.*)/[^/]*$', 1) AS folder,
    make_timestamp(TRY_CAST(doc->>'$.fleet.modified_ns' AS BIGINT) // 1000) AS modified,
    doc->>'$.target.executable' AS executable, doc->>'$.allocators[0].name' AS allocator,
    doc->>'$.allocators[0].version' AS version, doc->>'$.allocators[0].build_id' AS build_id,
    doc->>'$.data.verdict.kind' AS verdict, TRY_CAST(doc->>'$.data.memory.total_bytes' AS BIGINT) AS memory_bytes,
    TRY_CAST(doc->>'$.partial' AS BOOLEAN) AS partial, doc->>'$.fleet.error' AS error
  FROM documents WHERE doc->>'$.schema' = 'gdbheapx/1';
CREATE OR REPLACE VIEW classes AS
  SELECT document, TRY_CAST(one->>'$.size_bytes' AS BIGINT) AS size_bytes,
    TRY_CAST(one->>'$.used_chunks' AS BIGINT) AS blocks, TRY_CAST(one->>'$.used_bytes' AS BIGINT) AS bytes
  FROM (SELECT document, unnest(CAST(doc->'$.data.sizes' AS JSON[])) AS one FROM documents
    WHERE json_type(doc, '$.data.sizes') = 'ARRAY');
-- Which build
CREATE OR REPLACE VIEW builds AS
  SELECT executable, allocator, version, build_id, verdict, count(*) AS cores, count(error) AS failed, sum(memory_bytes) AS memory_bytes
  FROM cores GROUP BY ALL ORDER BY memory_bytes DESC NULLS LAST;
-- Which host: cores are usually collected in a folder for each
CREATE OR REPLACE VIEW hosts AS
  SELECT folder, count(*) AS cores, count(error) AS failed, sum(memory_bytes) AS memory_bytes, max(memory_bytes) AS largest_bytes
  FROM cores GROUP BY ALL ORDER BY memory_bytes DESC NULLS LAST;
-- Which class grew, from the oldest core of a program to its newest; a core that was cut shows no growth
CREATE OR REPLACE VIEW growth AS
  SELECT executable, size_bytes, arg_max(bytes, modified) - arg_min(bytes, modified) AS growth_bytes,
    arg_min(bytes, modified) AS old_bytes, arg_max(bytes, modified) AS new_bytes, count(*) AS cores
  FROM cores JOIN classes USING (document) WHERE partial IS NOT TRUE GROUP BY ALL ORDER BY growth_bytes DESC NULLS LAST;
"""


def write(directory: str) -> None:
    """The file, anew."""
    replace(os.path.join(directory, NAME), SQL)


def replace(path: str, text: str) -> None:
    """Put a file in the place of another in one step, readable only by its owner."""
    descriptor, made = tempfile.mkstemp(prefix=".gdbheapx-", dir=os.path.dirname(path) or ".")  # mode 0600
    try:
        with open(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
        os.replace(made, path)
    except BaseException:
        os.unlink(made)
        raise
