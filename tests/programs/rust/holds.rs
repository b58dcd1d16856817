// Keeps containers and trait objects of each kind, says on standard error how many blocks of each there are, and `ready`; waits for its input
// to end.

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{Read, Write};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

static LIVE: AtomicUsize = AtomicUsize::new(0);
struct Counting;
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(1, Ordering::Relaxed);
        System.alloc(layout)
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE.fetch_sub(1, Ordering::Relaxed);
        System.dealloc(block, layout)
    }
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        System.realloc(block, layout, size)
    }
}
#[global_allocator]
static COUNTING: Counting = Counting;

trait Shape {
    fn area(&self) -> u64;
}
struct Square {
    side: [u64; 3],
}
struct Circle {
    radius: [u64; 9],
}
struct Owner {
    id: u64,
    title: String,
    more: [u64; 4],
    shape: Box<dyn Shape>,
}
impl Shape for Square {
    fn area(&self) -> u64 {
        self.side[0]
    }
}
impl Shape for Circle {
    fn area(&self) -> u64 {
        self.radius[8] * 3
    }
}

fn main() {
    let by_number: HashMap<u64, String> = (0..5000).map(|i| (i, "v".repeat(40 + i as usize % 20))).collect();
    let maps: Vec<HashMap<u32, u64>> = (0..300).map(|i| (0..20 + i % 50).map(|j| (j, u64::from(j))).collect()).collect();
    let before = LIVE.load(Ordering::Relaxed);
    let tree: BTreeMap<u64, u64> = (0..20000).map(|i| (i, i)).collect();
    let words: BTreeMap<String, Vec<u16>> = (0..3000u16).map(|i| (format!("word number {:028}", i), vec![i; 40])).collect();
    let nodes = LIVE.load(Ordering::Relaxed) - before - 2 * words.len();
    let shared: Vec<Arc<[u64; 6]>> = (0..2000).map(|i| Arc::new([i; 6])).collect();
    let again = shared.clone();
    let rows: Vec<Vec<u64>> = (0..3000).map(|i| (0..i % 40 + 5).collect()).collect();
    let boxes: Vec<Box<[u64; 9]>> = (0..1000).map(|i| Box::new([i; 9])).collect();
    let queue: VecDeque<u64> = (0..1000).collect();
    let squares: Vec<Box<dyn Shape>> = (0..700).map(|i| Box::new(Square { side: [i; 3] }) as Box<dyn Shape>).collect();
    let circles: Vec<Arc<dyn Shape>> = (0..800).map(|i| Arc::new(Circle { radius: [i; 9] }) as Arc<dyn Shape>).collect();
    let counted: Vec<Rc<dyn Shape>> = (0..900).map(|i| Rc::new(Square { side: [i; 3] }) as Rc<dyn Shape>).collect();
    let owners: Vec<Box<Owner>> = (0..600)
        .map(|i| {
            let shape: Box<dyn Shape> = Box::new(Circle { radius: [i; 9] });
            Box::new(Owner { id: i, title: "t".repeat(3 + i as usize % 60), more: [i; 4], shape })
        })
        .collect();
    let long = rows.iter().filter(|one| one.capacity() > 32).count();
    let bodies = 10; // of maps, shared, again, rows, boxes, squares, circles, counted and owners, and what standard output writes to
    eprintln!("hashes {}", 1 + maps.len());
    eprintln!("dyns {}", squares.len() + owners.len());
    eprintln!("shared {}", circles.len() + counted.len());
    eprintln!("counted {}", shared.len());
    eprintln!("btrees {}", nodes);
    eprintln!("vecs {}", by_number.len() + 2 * words.len() + long + owners.len() + bodies);
    println!("ready");
    std::io::stdout().flush().unwrap();
    let _ = std::io::stdin().read(&mut [0u8; 1]);
    let counts = [by_number.len(), maps.len(), tree.len(), shared.len(), again.len(), rows.len(), boxes.len(), queue.len(), words.len()];
    let area = squares.iter().map(|one| one.area()).sum::<u64>() + circles.iter().map(|one| one.area()).sum::<u64>();
    let rest = counted.iter().map(|one| one.area()).sum::<u64>() + owners.iter().map(|one| one.shape.area() + one.id + one.more[0]).sum::<u64>();
    println!("{:?} {}", counts, area + rest + owners.iter().map(|one| one.title.len() as u64).sum::<u64>());
}
