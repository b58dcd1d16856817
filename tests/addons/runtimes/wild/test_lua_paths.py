"""Paths of a Lua program's values: the program itself evaluates them, and must get the same values. Lua 5.3 and 5.4, and a stripped program with
an interpreter in it.

Files: addons/runtimes/lua.py.
"""

import random
import shutil
import subprocess
from typing import Iterator, NamedTuple

import pytest

from gdbheapx.addons.runtimes.lua import LUA_FUNCTION, STRINGS, LuaValues, find_lua_states
from gdbheapx.analysis.census.block import make_named_graph as made_graph
from gdbheapx.analysis.census.world import World
from gdbheapx.analysis.reachability.paths import FIELD, NamedGraph
from gdbheapx.inferior.target import open_elf_target
from gdbheapx.session import Session
from tests.support.gcores import gcore
from tests.support.processes import Process, Stage
from tests.support.tool import heapx

pytestmark = pytest.mark.wild  # an interpreter that may not be here

SAMPLES, LEAST_NAMED = 1000, 0.95
ODD = (
    *("truth words", "truth reserved", "truth quoted", "truth accent", "truth empty", "truth minus 14", "truth argument", "truth inner 7"),
    *("truth done first", "truth got"),
    *("truth true 14", "truth false", "truth half", "truth endless"),
)
"""What keys of every sort and some variables lead to: asked for always."""
PROGRAM = r"""
collectgarbage("stop")
local folder = arg[1]
local class = {}
class.__index = class
local function made(i)
    local item = setmetatable({name = "truth name " .. i, tags = {"truth tag " .. i, {deep = "truth deep " .. i}}}, class)
    if i % 3 == 0 then item.next = setmetatable({name = "truth second " .. i .. ("x"):rep(i % 90)}, class) end
    if i % 7 == 0 then item[-i], item[1.5 * 2], item[true] = "truth minus " .. i, "truth three " .. i, "truth true " .. i end
    return item
end
local function several(from, count) local all = {} for i = from, from + count - 1 do all[#all + 1] = made(i) end return all end
cache, list, hole = {}, several(1000, 300), {}
for i = 1, 600 do cache["u:" .. i] = made(i) end
for i = 1, 600, 2 do cache["u:" .. i] = nil end
for i = 1, 100 do hole[i] = "truth hole " .. i end
for i = 20, 95 do hole[i] = nil end
odd = {["two words"] = "truth words", ["end"] = "truth reserved", ["a\"b\\c\nd\te"] = "truth quoted", [""] = {"truth empty"}, ["\u{e9}"] = "truth accent",
    [false] = "truth false", [-0.5] = "truth half", [1/0] = "truth endless"}
local kept = several(3000, 200)
function handler() return kept end
function counter()
    local count, seen = 0, several(4000, 100)
    return function(more) count = count + 1 seen[#seen + 1] = more return seen, count end
end
counts = counter()
package.loaded["my.module"] = {rows = several(5000, 100)}
debug.getregistry().own = several(6000, 50)
files = {io.stdout, setmetatable({}, {__gc = function() end, held = several(7000, 50)})}
weak = setmetatable({}, {__mode = "v"})
for i = 2, 600, 2 do weak["w:" .. i] = cache["u:" .. i] end
local function shown(value)
    local kind = type(value)
    return kind == "string" and value or kind .. " " .. (tostring(value):match("0x%x+") or "?")
end
local function follow(value, rest)
    while rest ~= "" do
        local mark, name, after = rest:match("^%.<(%w+) ?([^>]*)>(.*)$")
        if mark == "metatable" then value, rest = debug.getmetatable(value), after
        elseif mark == "upvalue" then
            local number, found = tonumber(name), nil
            for n = 1, 255 do
                local title, held = debug.getupvalue(value, n)
                if title == nil then break end
                if title == name or number == n then found = held end
            end
            value, rest = found, after
        else
            local now, later = rest:match("^(.-)(%.<.*)$")
            value, rest = assert(load("local v = ... return v" .. (now or rest)))(value), later or ""
        end
    end
    return value
end
local function of_frame(thread, where, name, rest)
    for level = 0, 40 do
        local info = debug.getinfo(thread, level, "S")
        if info == nil then return end
        local own = info.linedefined > 0 and info.source:sub(2) .. ":" .. info.linedefined or info.source:sub(2)
        if own == where then
            local found
            for n = 1, 200 do
                local title, held = debug.getlocal(thread, level, n)
                if title == nil then break end
                if title == name then found = held end
            end
            return follow(found, rest)
        end
    end
end
local function told(path)
    local where, name, rest = path:match("^frame (.-): ([%a_][%w_]*)(.*)$")
    if where then return of_frame(coroutine.running(), where, name, rest) end
    local of, there, called, after = path:match("^coroutine (0x%x+) frame (.-): ([%a_][%w_]*)(.*)$")
    local _, wrapped = debug.getupvalue(co, 1)
    for _, thread in ipairs {wrapped, thread} do
        if tostring(thread):match("0x%x+") == of then return of_frame(thread, there, called, after) end
    end
    for _, start in ipairs {"debug.getregistry()", "package.loaded", "_G"} do
        if path:sub(1, #start) == start then return follow(load("return " .. start)(), path:sub(#start + 1)) end
    end
end
local function task(name)
    local rows, done = several(12000, 100), {"truth done " .. name}
    while true do
        local got = coroutine.yield(#rows)
        done[#done + 1] = got
    end
end
co = coroutine.wrap(task)
co("first")
co("truth got")
thread = coroutine.create(function(...) local held = several(13000, 100) coroutine.yield(held[1].name) return held end)
coroutine.resume(thread)
local function waits(argument, ...)
    local own, gone = several(8000, 100), several(9000, 1)
    gone = nil
    do local ended = several(10000, 1) end
    for key, item in pairs(own) do
        local inner = {"truth inner " .. key, item}
        if key == 7 then
            collectgarbage() collectgarbage("stop")
            io.write("ready\n") io.flush() io.read()
            local out = assert(io.open(folder .. "/told", "w"))
            for path in io.lines(folder .. "/paths") do
                local well, value = pcall(told, path)
                out:write(path == "" and "" or well and shown(value) or "failed: " .. tostring(value), "\0")
            end
            out:close()
            io.write("ready\n") io.flush() io.read()
        end
    end
end
local function calls()
    local rows = several(11000, 100)
    waits({"truth argument"}, {"truth more"})
    return rows
end
calls()
"""
EMBEDDING = r"""
#include <lauxlib.h>
#include <lualib.h>
int main(int argc, char **argv)
{
    lua_State *L = luaL_newstate();
    luaL_openlibs(L);
    lua_newtable(L);
    lua_pushstring(L, argv[2]);
    lua_rawseti(L, -2, 1);
    lua_setglobal(L, "arg");
    return luaL_dofile(L, argv[1]);
}
"""


PARTS = (
    ": done[",
    ": held[",
    "<upvalue seen>",
    "<metatable>",
    ": own[",
    ": rows[",
    ": argument",
    "package.loaded[",
    "debug.getregistry().own[",
    "_G.cache[",
)


class Sample(NamedTuple):
    """A value in the core."""

    node: int
    told: str
    """As the program tells it."""


def values(session: Session, graph: NamedGraph) -> Iterator[Sample]:
    """Strings that begin with `truth`; tables and functions, as tostring() shows them."""
    world = World(session)
    (state,) = find_lua_states(world)
    reader = LuaValues(world, state.layout)
    for node, (address, _) in enumerate(graph.reach.graph.blocks(list(range(graph.reach.numbers.blocks)))):
        kind = reader.kind(address)
        text = reader.text(address) if kind in STRINGS else None
        if text is not None and text.startswith(b"truth "):
            yield Sample(node, text.decode())
        table = reader.table(address)
        if table is not None and (not table.metatable or reader.table(table.metatable)) and reader.words(table.nodes, 2):
            yield Sample(node, "table 0x%x" % address)
        elif kind == LUA_FUNCTION and reader.kind(reader.words(address, 4)[3]) == state.layout.proto:
            yield Sample(node, "function 0x%x" % address)


def check(process: Process) -> None:
    """The census has all tables and functions; of 1,000 values those that have a path are what the program finds there."""
    core = str(gcore(process))
    session = Session(open_elf_target(core=core))
    session.prepare()
    graph = made_graph(session)
    assert graph.paths is not None
    every = list(values(session, graph))
    rows = {row["signature"]: row["blocks"] for row in heapx(["--core", core], "census", "--json").data["rows"] if row["module"] == "lua"}
    for kind in ("table", "function"):
        assert rows[kind] == sum(sample.told.startswith(kind) for sample in every)
    samples = [sample for sample in every if sample.told in ODD]
    samples += random.Random(1).sample([sample for sample in every if sample not in samples], SAMPLES - len(samples))
    paths = [graph.paths.of(sample.node) for sample in samples]
    texts = ["" if path is None or any(step.kind == FIELD for step in path.steps) else path.text for path in paths]
    (process.folder / "paths").write_text("".join("%s\n" % text for text in texts))
    process.command(b"check\n")
    told = (process.folder / "told").read_bytes().decode().split("\0")
    assert [(text, words) for text, words in zip(texts, told) if text] == [
        (text, sample.told) for text, sample in zip(texts, samples) if text
    ]
    assert sum(map(bool, texts)) >= LEAST_NAMED * SAMPLES
    assert {sample.told for text, sample in zip(texts, samples) if text} >= set(ODD)
    assert not [text for text in texts if "_G.weak[" in text], "a weak table keeps nothing"
    assert not [part for part in PARTS if not any(part in text for text in texts)]


def started(stage: Stage, *command: str) -> Process:
    """At rest, with the program behind these words."""
    folder = stage.folder()
    (folder / "program.lua").write_text(PROGRAM)
    return stage.spawn_ready([*command, str(folder / "program.lua"), str(folder)], folder)


@pytest.mark.parametrize("name", ["lua5.4", "lua5.3"])
def test_the_program_finds_its_values_by_them(stage: Stage, name: str) -> None:
    """Strings by their text, which each has alone; tables and functions by their address."""
    lua = shutil.which(name)
    if lua is None:
        pytest.skip("%s is not installed" % name)
    check(started(stage, lua))


def test_in_a_program_that_is_stripped(stage: Stage) -> None:
    """Nothing but what the interpreter says of itself is left: no symbol, no name of a file."""
    folder = stage.folder()
    (folder / "program.c").write_text(EMBEDDING)
    command = [
        "cc",
        "-O2",
        "-s",
        "-I/usr/include/lua5.4",
        "-o",
        str(folder / "service"),
        str(folder / "program.c"),
        "-l:liblua5.4.a",
        "-lm",
        "-ldl",
    ]
    if shutil.which("cc") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("Lua's library is not installed")
    check(started(stage, str(folder / "service")))
