"""Programs of PHP and Ruby that write into a file `truth` what they say of themselves."""

PHP = """<?php
$a = []; for ($i = 0; $i < 100000; $i++) $a[] = ["n" => $i, "s" => str_repeat("x", $i % 90)];
$b = []; for ($i = 0; $i < 100000; $i++) $b[] = str_repeat("y", 100);
$b = null;
$h = str_repeat("z", 20 << 20);
gc_collect_cycles();
file_put_contents($argv[1] . "/truth", memory_get_usage() . " " . memory_get_usage(true));
echo "ready\\n"; flush();
function waits(array $rows) { $kept = [$rows[1], "kept"]; while (fgets(STDIN)); }
waits($a);
"""
RUBY = """
$a = Array.new(100000) { |i| { n: i, s: "x" * (30 + i % 60) } }
$b = Array.new(50000) { |i| Object.new }
$b = nil
GC.start
counts = ObjectSpace.count_objects
File.write(ARGV[0] + "/truth", [GC.stat[:heap_allocated_pages], counts[:TOTAL], counts[:FREE], counts[:T_HASH], counts[:T_STRING],
  GC.respond_to?(:stat_heap) ? GC.stat_heap.values.sum { |heap| heap[:slot_size] * (heap[:heap_eden_slots] + heap.fetch(:heap_tomb_slots, 0)) } : 40 * counts[:TOTAL],
  GC::INTERNAL_CONSTANTS[:HEAP_PAGE_SIZE], GC.respond_to?(:stat_heap) ? 0 : 1].join(" "))
puts "ready"
STDOUT.flush
STDIN.read
"""
