<?php
namespace App;
class Item {
    public $name; public array $tags; public ?Item $next = null;
    function __construct($i, $deep = true) {
        $this->name = "truth name $i " . str_repeat("x", $i % 50);
        $this->tags = ["truth tag $i", "k$i" => ["truth deep $i"]];
        if ($deep && $i % 3 == 0) $this->next = new Item($i + 500000, false);
    }
}
function made($from, $count) { $all = []; for ($i = 0; $i < $count; $i++) $all["u:$i"] = new Item($from + $i); return $all; }
class Shop {
    private $rows = [];
    public $own;
    function handle(array $rows, &$by, ...$more) {
        $this->rows = made(1000, 300);
        $gone = made(2000, 100); $text = "truth text " . getmypid(); unset($gone["u:7"]); $gone = null;
        $one = new Item(3000);
        $result = self::fill($rows["u:1"], 5);
        CHECK(App\Shop::handle)
        return $result;
    }
    static function fill($item, $unset) {
        $list = array_values(made(4000, 300)); unset($unset);
        $used = ["truth used " . getmypid()];
        $apart = made(12000, 200);
        $inner = function ($argument) use ($list, &$used) {
            $GLOBALS["closure"] = (new \Exception)->getTrace()[0]["function"];
            $mine = made(5000, 200);
            foreach (running() as $value) { $seen = [$value]; }
            CHECK(App\Shop::CLOSURE)
            return $mine;
        };
        $kept = $inner(["truth argument " . getmypid()]);
        CHECK(App\Shop::fill)
        return $kept;
    }
}
function running() {
    $state = made(6000, 200);
    yield "first";
    $later = including("truth given " . getmypid());
    CHECK(App\running)
    yield $later;
}
function including($given) {
    $swapped = made(7000, 200); $left = made(8000, 200);
    extract(["taken" => ["truth extracted " . getmypid()]]);
    ${"odd" . "name"} = "truth odd " . getmypid();
    include $GLOBALS["argv"][1] . "/included";
    return $later;
}
function main() {
    $by = ["truth by " . getmypid()]; $held = made(13000, 200);
    $shop = new Shop; $shop->own = made(9000, 100);
    $shop->handle(made(10000, 300), $by, "truth more " . getmypid());
    CHECK(App\main)
}
$asked = $told = [];
main();
ksort($told);
file_put_contents($argv[1] . "/told", json_encode(["closure" => $closure] + $told));
echo "ready\n"; flush(); fgets(STDIN);
