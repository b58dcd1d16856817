require 'objspace'
COUNT = 4000
def text(name, i) = "#{name} #{i} " + "x" * 900
# pairs: new small hashes lie where full ones were, whose values are kept elsewhere
PAIRS = Array.new(8 * COUNT) { |i| text("pair", i) }
full = Array.new(COUNT) { |i| (0...8).to_h { |at| [at, PAIRS[8 * i + at]] } }
3.times { GC.start }
full = nil
3.times { GC.start }
SMALL = Array.new(COUNT) { |i| {1 => text("small", i), 2 => nil} }
# arrays: what was popped is kept elsewhere, and so is what stood in the slots of new ones
POPPED = []
ARRAYS = Array.new(COUNT) { |i| (0...40).map { |at| at < 10 ? text("popped", i) : nil }.reverse }
ARRAYS.each { |array| 10.times { POPPED << array.pop }; array[0] = text("array", array.size) }
SHORT = Array.new(COUNT) { |i| [text("short", 1), text("short", 2), text("short", 3)] }
TAKEN = []
SHORT.each { |array| 2.times { TAKEN << array.pop } }
# tables: deleted entries
DELETED = []
TABLES = Array.new(COUNT / 10) { |i| (0...60).to_h { |at| ["key #{at}", text("table", at)] } }
TABLES.each { |table| 30.times { |at| DELETED << table.delete("key #{2 * at}") } }
3.times { GC.start }
def bytes(seen, o)
  return 0 unless Array === o || Hash === o || String === o
  return 0 if seen[o]
  seen[o] = true
  below = Array === o ? o : Hash === o ? o.keys + o.values : []
  ObjectSpace.memsize_of(o) + below.sum { |one| bytes(seen, one) }
end
names = %w[PAIRS SMALL POPPED ARRAYS SHORT TAKEN DELETED TABLES]
Thread.new do  # nothing of this stays on a stack
  seen = {}.compare_by_identity
  File.write(ARGV[0] + "/truth", names.map { |name| "#{name} #{bytes(seen, Object.const_get(name))}" }.join("\n"))
end.join
3.times { GC.start }
puts "ready"
STDOUT.flush
STDIN.read
