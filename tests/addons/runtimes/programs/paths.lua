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
