class Node
  def initialize(up, number, store)
    @up, @children, @store, @name = up, [], store, "node #{number}" * 5
    up.children << self if up
  end
  attr_reader :children
end
def build
  store, list = {}, []
  60000.times { |number| list << store[number] = Node.new(list[number / 3], number, store) }
  list[0]
end
root = build
puts "ready"; STDOUT.flush; STDIN.read
