Item = Struct.new(:number, :kind)
class Task
  def initialize(number)
    @number, @kind = number, number % 10 == 0 ? "resolver" : "zone"
  end
end
$tasks = Array.new(3000) { |number| Task.new(number) }
$items = Array.new(3000) { |number| Item.new(number, number % 3 == 0 ? "a" : "b") }
puts "ready"
STDOUT.flush
STDIN.read
