"""The explorer's screens: what a key shows comes from command.py, and is there at once; SQL and differences come from another thread."""

import csv
import io
import os
from typing import Any, Callable, Iterable, Iterator, List, Optional, Sequence

from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import ScrollableContainer
from textual.events import Resize
from textual.screen import ModalScreen, Screen
from textual.widgets import DataTable, Footer, Input, Static, TabbedContent, TabPane, Tree

from gdbheapx.addons.views.explore.view import ExplorerClass, ExplorerView, Node, Shown
from gdbheapx.command.output import OutputFile
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.units import count_noun, format_figure, format_size
from gdbheapx.report import text
from gdbheapx.report.text import escape_line

SORTS = ("bytes", "blocks", "size", "name")
TABS = ("overview", "arenas", "owners", "census", "search", "sql", "diff")

FOCUS = {
    "overview": "#report-scroll",
    "arenas": "#arena-scroll",
    "owners": "#tree",
    "census": "#classes",
    "search": "#wanted",
    "sql": "#statement",
    "diff": "#changes",
}
"""Where keys go on each tab."""
KEYS = (
    "1 to 7      the tabs; arrows and page keys scroll",
    "Enter       open a row: an owner shows its classes, then its parts; a class its owners and blocks; a block its paths",
    "Escape      back",
    "p           tab 3: paths to the row's block",
    "/           tabs 4, 5, 6: where to type",
    "s           tab 4: sort by the next column",
    "e           write the table that is shown as CSV",
    "w           write the page of `report --html`",
    "?           these keys",
    "q           quit",
)


def escape_target_name(text: object) -> str:
    """Names of the target as a terminal may have them."""
    return escape_line(str(text))


class ExplorerTable(DataTable[str]):
    """A table of a Shown; Enter opens a row."""

    def __init__(self, name: str) -> None:
        super().__init__(id=name, cursor_type="row", zebra_stripes=True)
        self.shown = Shown((), ())

    def show(self, shown: Shown) -> None:
        """Replace the rows."""
        self.shown = shown
        self.clear(columns=True)
        for name in shown.columns:
            self.add_column(escape_target_name(name))
        for row in shown.rows:
            self.add_row(*(format_shown_cell(name, value) for name, value in zip(shown.columns, row)))


def wrap_sentences(lines: Iterable[str], width: int) -> Iterator[str]:
    """Sentences in as many lines as they need; rows of tables, which have gaps, as they are."""
    for line in lines:
        yield from [line] if "  " in line.strip() else text.wrap_sentence(line, width)


def format_shown_cell(name: str, value: Any) -> str:
    """Bytes as people read them."""
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, int):
        return escape_target_name(value)
    if name == "address":
        return "0x%x" % value
    return format_size(value, False) if "bytes" in name or name == "usable" else format_figure(name, value)


class Below(Screen[None]):
    """Screen of the rows that a row leads to; Escape goes back."""

    BINDINGS = [Binding("escape", "app.pop_screen", "back"), Binding("e", "export", "export")]

    def __init__(self, title: str, tables: Sequence[Shown] = (), lines: Sequence[str] = ()) -> None:
        super().__init__()
        self.told, self.tables, self.lines = title, tables, lines

    def compose(self) -> ComposeResult:
        yield Static(escape_target_name(self.told), markup=False, classes="title")
        for place, _ in enumerate(self.tables):
            yield ExplorerTable("below-%d" % place)
        if self.lines:
            yield ScrollableContainer(
                Static("\n".join(wrap_sentences(map(escape_target_name, self.lines), self.app.size.width - 2)), markup=False)
            )
        yield Footer()

    def on_mount(self) -> None:
        """Fill them."""
        for place, shown in enumerate(self.tables):
            self.query_one("#below-%d" % place, ExplorerTable).show(shown)

    def action_export(self) -> None:
        """The first table, or the text."""
        lines = Shown(("line",), [(line,) for line in self.lines])
        as_explorer(self.app).export(self.tables[0] if self.tables else lines, "explore-below.csv")


class FileName(ModalScreen[str]):
    """Asks for the file to write: Enter writes it, Escape leaves it."""

    BINDINGS = [Binding("escape", "app.pop_screen", "back")]
    CSS = "FileName { align: center middle; } FileName Input { width: 60; max-width: 90%; }"

    def __init__(self, name: str) -> None:
        super().__init__()
        self.proposed = name

    def compose(self) -> ComposeResult:
        asking = Input(self.proposed, id="file")
        asking.border_title = "write to this file (Enter), or not (Escape)"
        yield asking

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Close the screen with the name of the file to write."""
        event.stop()
        if event.value.strip():
            self.dismiss(event.value.strip())


class Explorer(App[None]):
    """Terminal application that shows one core or snapshot, and perhaps an older one for comparison."""

    TITLE = "gdbheapx explore"
    CSS = """
    .title { background: $boost; padding: 0 1; }
    TabbedContent, ContentSwitcher, TabPane, DataTable, Tree { height: 1fr; }
    TabPane { padding: 0; }
    ScrollableContainer Static { width: auto; }
    #suspects { max-height: 7; padding: 0 1; }
    """
    BINDINGS = [
        *(Binding(str(place), "show('%s')" % name, name, show=False) for place, name in enumerate(TABS, 1)),
        Binding("slash", "focus_input", "filter"),
        Binding("p", "paths", "paths"),
        Binding("s", "sort", "sort"),
        Binding("e", "export", "export"),
        Binding("question_mark", "keys", "keys"),
        Binding("w", "page", "page"),
        Binding("q", "quit", "quit"),
    ]

    def __init__(
        self,
        view: ExplorerView,
        about: str,
        sql: Callable[[str], Shown],
        difference: Optional[Callable[[], Shown]] = None,
        page: Optional[Callable[[str], str]] = None,
    ) -> None:
        super().__init__()
        self.view, self.about, self._sql, self._difference, self._page = view, about, sql, difference, page
        self.sort_by, self.like = 0, ""
        self.report: List[str] = []

    def compose(self) -> ComposeResult:
        yield Static(escape_target_name(self.about), markup=False, classes="title")
        with TabbedContent(initial="overview"):
            with TabPane("1 overview", id="overview"):
                yield ScrollableContainer(Static("", id="report", markup=False), id="report-scroll")
            with TabPane("2 arenas", id="arenas"):
                yield ScrollableContainer(Static("", id="arena-text", markup=False), id="arena-scroll")
            with TabPane("3 owners", id="owners"):
                yield Static("", id="suspects", markup=False)
                yield Tree("who keeps the memory, most first", id="tree")
            with TabPane("4 census", id="census"):
                yield Input(placeholder="class", id="like")
                yield ExplorerTable("classes")
            with TabPane("5 search", id="search"):
                yield Input(placeholder="address, or a part of a name", id="wanted")
                yield ExplorerTable("found")
            with TabPane("6 sql", id="sql"):
                yield Input(placeholder="SELECT class, count(*), sum(usable_bytes) FROM blocks GROUP BY ALL", id="statement")
                yield Static("", id="sql-said", markup=False)
                yield ExplorerTable("rows")
            with TabPane("7 diff", id="diff"):
                yield Static("", id="diff-said", markup=False)
                yield ExplorerTable("changes")
        yield Footer()

    def on_mount(self) -> None:
        """The first screen; the others are filled when they are opened."""
        self._show_report(self.size.width)
        tree = self.query_one("#tree", Tree)
        for node in self.view.tops():
            self._add_node(tree.root, node)
        tree.root.expand()
        self.query_one("#suspects", Static).update("\n".join(map(escape_target_name, self.view.suspicions())))
        self._show_classes()
        self.query_one("#report-scroll").focus()

    def on_resize(self, event: Resize) -> None:
        """Sentences fit the terminal as it is."""
        self._show_report(event.size.width)

    def _show_report(self, width: int) -> None:
        notes = self.view.notes()
        told = ["", "Notes:", *("  " + note for note in notes)] if notes else []
        self.report = list(map(escape_target_name, [*self.view.text("report", "--no-deep", width=width - 2).split("\n"), *told]))
        self.query_one("#report", Static).update("\n".join(wrap_sentences(self.report, width - 2)))

    def on_tabbed_content_tab_activated(self, event: TabbedContent.TabActivated) -> None:
        """Fill the tabs that take a moment when they are opened."""
        if event.pane.id == "arenas":
            self.query_one("#arena-text", Static).update("\n".join(map(escape_target_name, self.view.text("arenas").split("\n"))))
        elif event.pane.id == "diff":
            self._ask_difference()

    def _add_node(self, above: Any, node: Node) -> None:
        owned = node.owned
        label = "%10s  %5.1f%%  %s%s" % (
            format_size(owned.retained_bytes, False),
            owned.share_percent,
            escape_target_name(owned.owner),
            "  (%s)" % escape_target_name(owned.signature) if owned.signature else "",
        )
        from rich.text import Text

        (above.add if node.can_open else above.add_leaf)(Text(label), data=node)

    def on_tree_node_expanded(self, event: "Tree.NodeExpanded[Any]") -> None:
        """Its classes, then what it owns, the first time."""
        node = event.node
        if node.data is not None and not node.children:
            from rich.text import Text

            for row in self.view.classes_below(node.data.owned.owner) if node.parent is node.tree.root else ():
                label = "%10s  %s, %s" % (
                    format_size(row.bytes, False),
                    escape_target_name(row.signature or "not named"),
                    count_noun(row.blocks, "block"),
                )
                node.add_leaf(Text("%s  by class" % label), data=ExplorerClass(row.signature, row.size_bytes))
            below, more_bytes = self.view.below(node.data.number)
            for one in below:
                self._add_node(node, one)
            if more_bytes:
                node.add_leaf("%10s  more, none of it larger: the census has it by class" % format_size(more_bytes, False))

    def on_tree_node_selected(self, event: "Tree.NodeSelected[Any]") -> None:
        """A leaf leads to its paths, a class to its owners and blocks."""
        node = event.node.data
        if isinstance(node, ExplorerClass):
            self.open_class(node)
        elif node is not None and not node.can_open and node.owned.address is not None:
            self.open_block(node.owned.address)

    def _show_classes(self) -> None:
        rows = self.view.classes(self.like, SORTS[self.sort_by])
        columns = ("bytes", "%", "blocks", "size", "type", "module")
        cells = [(row.bytes, "%.1f" % row.share_percent, row.blocks, row.size_bytes, row.signature, row.module) for row in rows]
        self.query_one("#classes", ExplorerTable).show(
            Shown(columns, cells, [ExplorerClass(row.signature, row.size_bytes) for row in rows])
        )

    def on_input_changed(self, event: Input.Changed) -> None:
        """The filter works while it is typed."""
        if event.input.id == "like":
            self.like = event.value
            self._show_classes()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Search, or ask SQL."""
        if event.input.id == "wanted":
            self.query_one("#found", ExplorerTable).show(self.view.search(event.value.strip()))
            self.query_one("#found", ExplorerTable).focus()
        elif event.input.id == "statement":
            self.query_one("#sql-said", Static).update("asking ...")
            self._ask_sql(event.value)
        elif event.input.id == "like":
            self.query_one("#classes", ExplorerTable).focus()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """A class leads to its owners and blocks, an address to its paths, an owner to its place in the tree."""
        table = event.data_table
        keys = table.shown.keys if isinstance(table, ExplorerTable) else ()
        key = keys[event.cursor_row] if event.cursor_row < len(keys) else None
        if isinstance(key, int):
            self.open_block(key)
        elif isinstance(key, str):
            self.open_owner(key)
        elif isinstance(key, ExplorerClass):
            self.open_class(key)

    def open_class(self, key: ExplorerClass) -> None:
        """Show the owners of a class, and its first blocks."""
        owners, blocks = self.view.owners_of(key), self.view.blocks_of(key)
        about = "%s: who owns them, and the first of them" % key.signature
        if key.signature is None:
            about = "unknown: who owns all such blocks, and the first of %s bytes" % key.size_bytes
        names = [row.owner for row in owners]
        tables = [
            Shown(("bytes", "blocks", "owner"), [(row.bytes, row.blocks, row.owner) for row in owners], names),
            Shown(("address", "usable"), blocks, [address for address, _ in blocks]),
        ]
        self.push_screen(Below(about, tables))

    def open_owner(self, name: str) -> None:
        """The tree, with the cursor on it."""
        tree = self.query_one("#tree", Tree)
        found = next((node for node in tree.root.children if node.data is not None and node.data.owned.owner == name), None)
        if found is None:
            self.notify("%s has no row of its own in the tree" % escape_target_name(name), markup=False)
            return
        if isinstance(self.screen, Below):
            self.pop_screen()
        tree.root.expand()
        self.action_show("owners")
        self.call_after_refresh(tree.move_cursor, found)

    def open_block(self, address: int) -> None:
        """Show the block, and its paths."""
        try:
            lines = self.view.block(address)
        except HeapxError as error:
            lines = [error.line()]
        self.push_screen(Below("0x%x" % address, lines=lines))

    @work(thread=True, exclusive=True, group="sql")
    def _ask_sql(self, sql: str) -> None:
        try:
            shown, told = self._sql(sql), ""
        except HeapxError as error:
            shown, told = Shown((), ()), error.line()
        self.call_from_thread(self._show_result, "#sql-said", "#rows", told, shown)

    @work(thread=True, exclusive=True, group="diff")
    def _ask_difference(self) -> None:
        told, shown = "give an older snapshot or core: gdbheapx explore NEW --against OLD", Shown((), ())
        if self._difference is not None:
            try:
                told, shown = "", self._difference()
            except HeapxError as error:
                told = error.line()
        self.call_from_thread(self._show_result, "#diff-said", "#changes", told, shown)

    def _show_result(self, said: str, table: str, told: str, shown: Shown) -> None:
        self.query_one(said, Static).update(escape_target_name(told))
        self.query_one(table, ExplorerTable).show(shown)

    def action_show(self, name: str) -> None:
        """Open one of the tabs."""
        self.query_one(TabbedContent).active = name
        if name in FOCUS:
            self.call_after_refresh(self.query_one(FOCUS[name]).focus)
        tree = self.query_one("#tree", Tree)
        if name == "owners" and tree.cursor_line < 1 and tree.root.children:
            self.call_after_refresh(tree.move_cursor, tree.root.children[0])  # Enter opens the largest, and does not close them all

    def action_paths(self) -> None:
        """Show the paths of the block under the cursor in the tree, also of a row that Enter would expand."""
        node = self.query_one("#tree", Tree).cursor_node
        if self.query_one(TabbedContent).active != "owners" or node is None or not isinstance(node.data, Node):
            self.notify("p shows the paths of a block, in tab 3; a class opens with Enter")
            return
        if node.data.owned.address is None or not node.data.is_block:
            self.notify("%s is where paths end" % escape_target_name(node.data.owned.owner), markup=False)
        else:
            self.open_block(node.data.owned.address)

    def action_focus_input(self) -> None:
        """Focus the input of this tab."""
        active = self.query_one(TabbedContent).active
        name = {"census": "#like", "search": "#wanted", "sql": "#statement"}.get(active)
        if name is not None:
            self.query_one(name, Input).focus()
        else:
            self.notify("/ is for tabs 4, 5 and 6")

    def action_keys(self) -> None:
        """Show the keys and their actions."""
        self.push_screen(Below("keys", lines=KEYS))

    def action_sort(self) -> None:
        """The census by the next column."""
        if self.query_one(TabbedContent).active != "census":
            self.notify("s sorts the census, in tab 4")
            return
        self.sort_by = (self.sort_by + 1) % len(SORTS)
        self._show_classes()
        self.notify("census by %s" % SORTS[self.sort_by])

    def action_export(self) -> None:
        """The table that is shown, as CSV."""
        active = self.query_one(TabbedContent).active
        name = {"census": "#classes", "search": "#found", "sql": "#rows", "diff": "#changes"}.get(active)
        if name is None:
            rows = [(node.owned.owner, node.owned.retained_bytes, node.owned.share_percent) for node in self.view.tops()]
            self.export(Shown(("owner", "retained_bytes", "share_percent"), rows), "explore-owners.csv")
        else:
            self.export(self.query_one(name, ExplorerTable).shown, "explore-%s.csv" % active)

    def export(self, shown: Shown, proposed: str) -> None:
        """Ask for a file, and write a table to it."""
        self.push_screen(FileName(proposed), lambda path: self._write_csv(shown, path) if path is not None else None)

    def _write_csv(self, shown: Shown, path: str) -> None:
        """A cell that a spreadsheet would run begins with a quote."""
        from gdbheapx.addons.views.query.csv_rows import CELL_FORMULA

        try:
            text = io.StringIO(newline="")
            out = csv.writer(text)
            out.writerow(shown.columns)
            for row in shown.rows:
                out.writerow(["'" + value if isinstance(value, str) and value.startswith(CELL_FORMULA) else value for value in row])
            OutputFile(path).finish(text.getvalue().encode("utf-8", "surrogateescape"))
            self.notify("written: %s" % os.path.abspath(path))
        except HeapxError as error:
            self.notify(error.line(), severity="error")

    def action_page(self) -> None:
        """The page of `report --html` of the same."""

        def write_if_named(path: Optional[str]) -> None:
            if path is not None:
                self._write_page(path)

        self.push_screen(FileName("explore.html"), write_if_named)

    @work(thread=True, exclusive=True, group="page")
    def _write_page(self, path: str) -> None:
        told = self._page(path) if self._page is not None else "no page of this"
        self.call_from_thread(self.notify, told)


def as_explorer(app: App[Any]) -> Explorer:
    """The app as what it is."""
    assert isinstance(app, Explorer)
    return app
