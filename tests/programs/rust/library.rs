// A library in Rust for a program that is not: keep() makes 500 boxed trait objects and 500 strings of 40 to 59 characters, and keeps them.

use std::hint::black_box;

trait Shape {
    fn area(&self) -> u64;
}
struct Square {
    side: [u64; 3],
}
impl Shape for Square {
    fn area(&self) -> u64 {
        self.side[0]
    }
}
struct Kept {
    shapes: Vec<Box<dyn Shape>>,
    texts: Vec<String>,
}

#[no_mangle]
pub extern "C" fn keep() -> u64 {
    let shapes = (0..500).map(|i| Box::new(Square { side: [i << 20; 3] }) as Box<dyn Shape>).collect(); // no counts
    let texts = (0..500).map(|i| "t".repeat(40 + i % 20)).collect();
    let kept = black_box(Box::leak(Box::new(Kept { shapes, texts })));
    println!("kept {}", kept.texts.len());
    kept.shapes.iter().map(|one| one.area()).sum()
}
