require 'objspace'
require 'json'
require 'webrick'
Pair = Struct.new(:a, :b, :c, :d, :e)
class Item
  def initialize(i); @name, @tags, @attrs = "item name number %d with long text" % i, ["t#{i}", [i.to_s * 3]], {a: "v#{i}", "k#{i}" => ["x#{i}"]}; @pair = Pair.new("p#{i}", nil, [i.to_s], {1 => "one"}); end
end
class Wide
  def initialize(i); @a, @b, @c, @d, @e, @f, @g = i.to_s, [i], {i => i.to_s}, "d#{i}", nil, "f#{i}" * 20, i; end
end
CACHE = {}
5000.times { |i| CACHE["u:#{i}"] = i.odd? ? Item.new(i) : Wide.new(i) }
1000.times { |i| CACHE.delete("u:#{i * 3}"); CACHE["more#{i}"] = {one: "1", two: i.to_s} }
GC.start; 1000.times { |i| CACHE["u:#{i}"] ||= {i => [i.to_s] * (i % 7)} }
GC.start; GC.disable
File.open(ARGV[0] + "/dump", "w") { |file| ObjectSpace.dump_all(output: file) }
puts "ready"; STDOUT.flush; STDIN.read
