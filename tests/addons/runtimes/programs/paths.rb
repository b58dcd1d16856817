require 'objspace'
require 'json'
require 'set'
module App
  Point = Struct.new(:x, :y, :z, :w, :v)
  Pair = Struct.new(:left, :right)
  class Wide < Struct.new(:name, :list); end
  class Item
    def initialize(i)
      @name = "item name number %d with long text" % i
      @tags = ["t#{i}", "u" * 50, [i.to_s * 3]]
      @attrs = {a: "v#{i}", "k#{i}" => ["x#{i}"]}
      @point = Point.new("p#{i}", [i.to_s], nil, {1 => "one"}, 5)
      @later = i.odd? ? nil : [i.to_s]
    end
  end
  class Derived < Item
    def initialize(i); super; @more = [i.to_s, "more #{i}"]; end
  end
  class Small
    def initialize(i); @one = "small#{i}"; @two = [i.to_s]; end
  end
  class Varied  # no shape names so many orders of variables
    def initialize(i)
      12.times { |at| instance_variable_set("@v#{(i + at) % 12}", "varied #{i} #{at}") }
      remove_instance_variable("@v0") if i.odd?
    end
  end
  Fixed = defined?(Data.define) ? Data.define(:left, :right) : Struct.new(:left, :right)
  class Registry
    @instances = {}
    @@all = []
    def self.add(k, v); @instances[k] = v; @@all << Small.new(k); end
  end
  CACHE = {}
  def self.made
    rows = Array.new(50) { |i| "row #{i}" * 3 }
    deep = nil
    [1].each { |one| inner = ["inner #{one}"] * 20; deep = lambda { inner.size + rows.size } }
    deep
  end
  HANDLER = made
  module Deep
    STORE = Array.new(50) { |i| Pair.new("l#{i}", Small.new(i)) }
    VARIED = Array.new(50) { |i| Varied.new(i) }
    FIXED = Array.new(50) { |i| Fixed.new("left #{i}", [Fixed.new(i.to_s, nil)]) }
    WIDE = Array.new(50) { |i| Wide.new("w#{i}", [i.to_s] * 2) }
  end
end
2000.times { |i| App::CACHE["u:#{i}"] = (i.odd? ? App::Item : App::Derived).new(i); App::Registry.add(i, [App::Small.new(i)]) }
300.times { |i| App::CACHE.delete("u:#{i * 3}") }
one = App::CACHE["u:1"]
def one.only_mine; end
$cache = Hash.new { |h, k| h[k] = [] }
300.times { |i| $cache["g#{i}".to_sym] << "text #{i}" << {deep: {deeper: ["v#{i}"]}} }
$odd = {[1, 2] => "array key", 1.5 => "float", nil => "nil", "a\"b\#{x}\\" => "quoted", "é" => "utf", "\xff".b => "binary", -5 => "minus", "q\n" => "end"}
$small = {[1, 2] => "array", 2.5 => "float", "x" => ["y"]}
$same = {}.compare_by_identity
20.times { |i| $same["same".dup] = "id#{i}" }
@main_list = Array.new(100) { |i| "main #{i}" * 3 }
$set = Set.new((0..50).map { |i| "set #{i}" })
ObjectSpace.count_objects
RESULTS = ARGV[0]
GC.start
3.times { GC.start } if ARGV[1] == "old"

def walk(roots)
  seen, queue = {}.compare_by_identity, roots.dup
  until queue.empty?
    o = queue.shift
    next if seen[o] || [Integer, Symbol, Float, NilClass, TrueClass, FalseClass].any? { |c| c === o }
    seen[o] = true
    case o
    when Array then queue.concat(o)
    when Hash then queue.concat(o.keys).concat(o.values)
    when Struct then queue.concat(o.to_a)
    when App::Fixed then queue.concat(o.to_h.values)
    end
    queue.concat(o.instance_variables.map { |v| o.instance_variable_get(v) }) unless o.frozen? && String === o
  end
  seen.keys
end

def size_of(o)
  case o
  when String then o.bytesize
  when Array, Hash, Struct then o.size
  when App::Fixed then o.to_h.size
  else 0
  end
end

def truth(main_list)
  roots = [App::CACHE, App::Registry.instance_variable_get(:@instances), App::Registry.class_variable_get(:@@all),
           App::Deep::STORE, App::Deep::WIDE, App::Deep::VARIED, App::Deep::FIXED, $cache, $odd, $small, $same, $set, main_list,
           App::HANDLER.binding.local_variable_get(:rows), App::HANDLER.binding.local_variable_get(:inner)]
  all = walk(roots)
  all = all.sample(1000, random: Random.new(ARGV[2].to_i))
  File.write(RESULTS + "/objects", all.map { |o| JSON.parse(ObjectSpace.dump(o)).values_at("address", "type").push(size_of(o)).join(" ") }.join("\n"))
  counts = Hash.new(0)
  ObjectSpace.each_object { |o| counts[o.class.name] += 1 if /^App::/ =~ o.class.name }
  File.write(RESULTS + "/classes", counts.map { |name, count| "#{name} #{count}" }.join("\n"))
  puts "ready"
  STDOUT.flush
  STDIN.gets
  good = wrong = failed = 0
  File.readlines(RESULTS + "/paths", chomp: true).zip(all).each do |path, o|
    next if path.empty?
    code = path.gsub(/\.(@@\w+)/) { ".class_variable_get(:#{$1})" }.gsub(/\.(@\w+)/) { ".instance_variable_get(:#{$1})" }
    begin
      value = TOPLEVEL_BINDING.eval(code)
      value.equal?(o) ? good += 1 : (wrong += 1; $stderr.puts "wrong: #{path}")
    rescue Exception => e
      failed += 1; $stderr.puts "failed: #{path} #{e.message}"
    end
  end
  File.write(RESULTS + "/verdict", [good, wrong, failed].join(" "))
  puts "ready"
  STDOUT.flush
  STDIN.gets
end
truth(@main_list)
