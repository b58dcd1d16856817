Item = Struct.new(:name, :count)
class Session
  def initialize(number)
    @key, @number = "session #{number}, and what it is for", number
  end
end
$sessions = Array.new(5000) { |number| Session.new(number) }
$items = Array.new(5000) { |number| Item.new("item #{number}", number) }
$templates = Array.new(3000) { |number| "template #{number % 3} " * 40 }
puts "ready"
STDOUT.flush
STDIN.read
