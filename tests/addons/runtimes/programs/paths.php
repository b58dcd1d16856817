<?php
namespace App;
class Item {
    public $name; public array $tags; public ?Item $next = null; public $extra;
    function __construct($i) {
        $this->name = "truth name $i " . str_repeat("x", $i % 50);
        $this->tags = ["truth t$i", "k$i" => ["truth deep $i"], 7 => "truth seven $i", -3 => "truth minus $i"];
        if ($i % 3 == 0) $this->next = new Later($i);
        if ($i % 5 == 0) @($this->more = ["truth more $i"]);
    }
}
class Later extends Item {
    public $list = [];
    function __construct($i) { $this->name = "truth second $i"; $this->tags = []; $this->list = ["m" => ["truth m$i" . "z"]]; }
}
class Registry {
    public static $items = []; public static array $texts = []; public static $one;
    const LIMITS = ["a" => ["b", 1]];
}
class Below extends Registry { public static $own = []; }
$cache = [];
for ($i = 0; $i < 1000; $i++) {
    $cache["u:$i"] = new Item($i);
    Registry::$items[$i * 3] = new Item($i + 5000);
    Registry::$texts[] = "truth static $i";
    Below::$own["b$i"] = ["truth below $i"];
}
for ($i = 0; $i < 200; $i++) unset($cache["u:" . $i * 3]);
$list = []; for ($i = 0; $i < 300; $i++) $list[] = "truth entry $i";
$same = &$list;
$odd = ["a\"b\$c\\" => "truth quoted " . getmypid(), "\u{e9}" => "truth accent " . getmypid(), "two\nlines" => "truth lines " . getmypid(), "" => "truth empty " . getmypid()];
\define("CONF", ["x" => ["truth conf " . getmypid()]]);
$object = new \stdClass; $object->field = ["truth field " . getmypid()]; $object->{"0"} = "truth zero " . getmypid();
$object->{"two words"} = "truth words " . getmypid(); ${"odd name"} = ["truth odd " . getmypid()];
if (\PHP_VERSION_ID >= 80400) {
    eval('namespace App; class Modern extends Item {
        public private(set) array $set = []; public $hooked { set => ["$value"]; } public string $virtual { get => "none"; }
        function __construct(int $i) { parent::__construct($i + 9000); $this->set = ["truth set $i"]; $this->hooked = "truth hooked $i"; }
    }');
    $class = new \ReflectionClass("App\\Modern");
    for ($i = 0; $i < 200; $i++) {
        $modern[] = $i % 2 ? new Modern($i) : $class->newLazyGhost(function ($ghost) use ($i) { $ghost->__construct($i); });
        if ($i % 4 == 0) $modern[$i]->set;
        if ($i % 10 == 0) ($lazy[$i] = $class->newLazyProxy(fn() => new Modern($i + 300)))->set;
    }
}
unset($i);
echo "ready\n"; flush(); fgets(STDIN);
function told($path) {
    foreach (array_keys($GLOBALS) as $name) global $$name;
    $value = eval("return $path;");
    return is_object($value) ? get_class($value) . " " . spl_object_id($value) : $value;
}
$told = [];
foreach (explode("\n", file_get_contents($argv[1] . "/paths")) as $path) {
    try { $told[] = $path === "" ? "" : told($path); } catch (\Throwable $e) { $told[] = "failed: " . $e->getMessage(); }
}
file_put_contents($argv[1] . "/told", implode("\n", $told));
echo "ready\n"; flush(); fgets(STDIN);
