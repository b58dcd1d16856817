// rust_containers RECORD ELEMENTS THREADS: the collections of Rust, each in a static; the record is that of truth.h.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::RefCell;
use std::collections::{BTreeMap, BinaryHeap, HashMap, LinkedList, VecDeque};
use std::fs::File;
use std::hint::black_box;
use std::io::{Read, Write};
use std::mem::size_of_val;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::thread;

extern "C" {
    fn malloc_usable_size(block: *mut u8) -> usize;
}

static TAKEN: AtomicUsize = AtomicUsize::new(0);
struct Counting;
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let made = System.alloc(layout);
        TAKEN.fetch_add(malloc_usable_size(made), Ordering::Relaxed);
        made
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        TAKEN.fetch_sub(malloc_usable_size(block), Ordering::Relaxed);
        System.dealloc(block, layout)
    }
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        TAKEN.fetch_sub(malloc_usable_size(block), Ordering::Relaxed);
        let made = System.realloc(block, layout, size);
        TAKEN.fetch_add(malloc_usable_size(made), Ordering::Relaxed);
        made
    }
}
#[global_allocator]
static COUNTING: Counting = Counting;

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Item {
    id: u64,
    text: String,
    more: [u64; 4],
}
struct Chained {
    item: Item,
    next: Option<Box<Chained>>,
}
struct Branch {
    item: Item,
    parent: RefCell<Weak<Branch>>,
    children: RefCell<Vec<Rc<Branch>>>,
}
enum Entry {
    Taken(Box<Item>),
    Free(usize),
}
struct Slab {
    entries: Vec<Entry>,
    next: usize,
}
struct Request {
    what: usize,
    more: [u64; 11],
}
/// What only the main thread touches.
struct Alone<T>(T);
unsafe impl<T> Sync for Alone<T> {}
unsafe impl<T> Send for Alone<T> {}

static G_VEC: Mutex<Vec<Box<Item>>> = Mutex::new(Vec::new());
static G_MAP: Mutex<Option<HashMap<String, Box<Item>>>> = Mutex::new(None);
static G_ARCS: RwLock<Option<Arc<HashMap<u64, Arc<Item>>>>> = RwLock::new(None);
static G_BTREE: Mutex<BTreeMap<String, Box<Item>>> = Mutex::new(BTreeMap::new());
static G_LINKED: Mutex<LinkedList<Item>> = Mutex::new(LinkedList::new());
static G_DEQUE: Mutex<VecDeque<Box<Item>>> = Mutex::new(VecDeque::new());
static G_HEAP: Mutex<Option<BinaryHeap<Box<Item>>>> = Mutex::new(None);
static G_CHAIN: Mutex<Option<Box<Chained>>> = Mutex::new(None);
static G_SLAB: Mutex<Slab> = Mutex::new(Slab { entries: Vec::new(), next: 0 });
static G_TREE: Mutex<Alone<Option<Rc<Branch>>>> = Mutex::new(Alone(None));
static G_IN_WORK: Mutex<Vec<usize>> = Mutex::new(Vec::new());
static G_ARCS_IN_WORK: Mutex<Vec<Arc<Item>>> = Mutex::new(Vec::new());
static G_REQUESTS: Mutex<Vec<Box<Request>>> = Mutex::new(Vec::new());

fn item(id: u64) -> Item {
    Item { id, text: "v".repeat(40 + id as usize % 60), more: [id; 4] }
}

struct Truth {
    record: File,
    before: usize,
    chance: u64,
    hands: Vec<usize>,
    is_kept: Vec<usize>,
}

impl Truth {
    /// What was taken since the last one is the variable's.
    fn owns<T>(&mut self, name: &str, variable: &T) {
        let taken = TAKEN.load(Ordering::Relaxed) - self.before;
        let line = format!("owns {} {} {:p} {}\n", name, taken, variable, size_of_val(variable));
        self.record.write_all(line.as_bytes()).unwrap();
        drop(line);
        self.before = TAKEN.load(Ordering::Relaxed);
    }

    fn some(&mut self, limit: u64) -> u64 {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        self.chance % limit
    }

    /// The element is now and then in use elsewhere as well; its address is kept the other way round until all is built.
    fn work<T>(&mut self, element: &T) {
        let address = element as *const T as usize;
        let way = self.some(1000);
        let before = TAKEN.load(Ordering::Relaxed);
        if way < 2 {
            G_IN_WORK.lock().unwrap().push(address);
        } else if way < 4 {
            self.hands.push(!address);
        } else if way < 6 {
            G_REQUESTS.lock().unwrap().push(Box::new(Request { what: address, more: [way; 11] }));
        }
        self.before += TAKEN.load(Ordering::Relaxed) - before;
    }
}

fn build_arrays(truth: &mut Truth, count: u64) {
    for i in 0..count {
        let one = Box::new(item(i));
        truth.work(&*one);
        G_VEC.lock().unwrap().push(one);
    }
    truth.owns("G_VEC", &G_VEC);
    for i in 0..count {
        let one = Box::new(item(i));
        truth.work(&*one);
        let mut deque = G_DEQUE.lock().unwrap();
        deque.push_back(one);
        if i % 3 == 0 {
            let moved = deque.pop_front().unwrap();
            deque.push_back(moved);
        }
    }
    truth.owns("G_DEQUE", &G_DEQUE);
    let mut heap = BinaryHeap::new();
    for i in 0..count {
        let one = Box::new(item(i * 7919 % 65537));
        truth.work(&*one);
        heap.push(one);
    }
    *G_HEAP.lock().unwrap() = Some(heap);
    truth.owns("G_HEAP", &G_HEAP);
    for i in 0..count {
        let one = Box::new(item(i));
        truth.work(&*one);
        G_SLAB.lock().unwrap().entries.push(Entry::Taken(one));
    }
    for i in 0..count / 10 {
        let mut slab = G_SLAB.lock().unwrap();
        let place = (i * 7) as usize;
        if let Entry::Taken(_) = slab.entries[place] {
            slab.entries[place] = Entry::Free(slab.next);
            slab.next = place;
        }
    }
    truth.owns("G_SLAB", &G_SLAB);
}

fn build_maps(truth: &mut Truth, count: u64) {
    let mut map = HashMap::new();
    for i in 0..count {
        let one = Box::new(item(i));
        truth.work(&*one);
        map.insert(format!("key number {}", i), one);
    }
    *G_MAP.lock().unwrap() = Some(map);
    truth.owns("G_MAP", &G_MAP);
    let mut arcs = HashMap::new();
    for i in 0..count {
        let one = Arc::new(item(i));
        truth.work(&*one);
        let before = TAKEN.load(Ordering::Relaxed);
        if i % 500 == 7 {
            G_ARCS_IN_WORK.lock().unwrap().push(one.clone());
        }
        truth.before += TAKEN.load(Ordering::Relaxed) - before;
        arcs.insert(i, one);
    }
    *G_ARCS.write().unwrap() = Some(Arc::new(arcs));
    truth.owns("G_ARCS", &G_ARCS);
    for i in 0..count {
        let one = Box::new(item(i));
        truth.work(&*one);
        G_BTREE.lock().unwrap().insert(format!("key number {}", i * 7919 % 65537), one);
    }
    truth.owns("G_BTREE", &G_BTREE);
}

fn build_linked(truth: &mut Truth, count: u64) {
    for i in 0..count {
        let mut list = G_LINKED.lock().unwrap();
        list.push_back(item(i));
        truth.work(list.back().unwrap());
    }
    truth.owns("G_LINKED", &G_LINKED);
    let mut chain = None;
    for i in 0..count {
        let one = Box::new(Chained { item: item(i), next: chain });
        truth.work(&*one);
        chain = Some(one);
    }
    *G_CHAIN.lock().unwrap() = chain;
    truth.owns("G_CHAIN", &G_CHAIN);
    let mut all: Vec<Rc<Branch>> = Vec::new();
    for i in 0..count {
        let one = Rc::new(Branch { item: item(i), parent: RefCell::new(Weak::new()), children: RefCell::new(Vec::new()) });
        if i > 0 {
            let above = &all[truth.some(if i < 6 { i } else { i / 3 }) as usize];
            *one.parent.borrow_mut() = Rc::downgrade(above);
            above.children.borrow_mut().push(one.clone());
        }
        truth.work(&*one);
        all.push(one);
    }
    let root = all[0].clone();
    // No stale pointers stay in its block; the counts stay higher by one.
    unsafe {
        std::ptr::write_bytes(all.as_mut_ptr(), 0, all.len());
        all.set_len(0);
    }
    drop(all);
    G_TREE.lock().unwrap().0 = Some(root);
    truth.owns("G_TREE", &G_TREE);
}

fn watch(hand: usize) {
    let mine = [!hand; 2];
    loop {
        thread::park();
        black_box(&mine);
    }
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let (count, threads): (u64, usize) = (words[2].parse().unwrap(), words[3].parse().unwrap());
    let record = File::create(&words[1]).unwrap();
    let mut truth = Truth { record, before: 0, chance: 88172645463325252, hands: Vec::new(), is_kept: Vec::new() };
    truth.before = TAKEN.load(Ordering::Relaxed);
    build_arrays(&mut truth, count);
    build_maps(&mut truth, count);
    build_linked(&mut truth, count);
    for i in 0..threads {
        let hand = truth.hands[i * 17 % truth.hands.len()];
        thread::Builder::new().stack_size(128 << 10).spawn(move || watch(hand)).unwrap();
    }
    truth.is_kept.push(count as usize);
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    black_box((&truth.is_kept, &G_LINKED, &G_CHAIN, &G_TREE, &G_SLAB));
}
