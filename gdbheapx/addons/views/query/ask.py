"""SQL from Python: the look is taken by who asks, DuckDB answers in this process."""

import os
from typing import Any, Callable, Dict, Optional

from gdbheapx import worker
from gdbheapx.addons.views.query import engine, table_rows, text
from gdbheapx.addons.views.query.table_rows import LookRequest
from gdbheapx.api import Rows
from gdbheapx.report.encodings import make_jsonable

find = table_rows.find_table_rows


def ask(sql: str, look: Callable[[LookRequest], Dict[str, Any]], max_seconds: Optional[float] = None) -> Rows:
    """The rows of one SELECT; `look` gives rows by table, as table_rows.find() does, and is not called where SQL names no table. UsageError
    for what is no SELECT, HeapxError where DuckDB is not installed, or has not answered within `max_seconds`."""
    until = engine.compute_deadline(max_seconds)
    needed = engine.bind_statement(sql, until)
    asked, tables = needed.asked, {}
    descriptors = [worker.open_temporary() if is_asked else None for is_asked in (True, asked.with_signatures, asked.with_owners)]
    try:
        rows, signed, held = descriptors
        if asked.tables:
            tables = make_jsonable(look(LookRequest(asked.tables, rows or 0, signed, held, asked.with_paths)))
        with engine.PrivateFolder() as folder:
            path = engine.fill_database(folder, asked, tables, rows or 0, signed, held)
            result = engine.Asking(folder, path, until).ask(needed.sql)
            names = text.unique_column_names(result.columns)
            return Rows({name: kind for name, (_, kind) in zip(names, result.columns)}, [dict(zip(names, row)) for row in result.rows])
    finally:
        for descriptor in descriptors:
            if descriptor is not None:
                os.close(descriptor)
