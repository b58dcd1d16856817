// Keeps containers of each kind, and says `ready`; waits for its input to end.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{Read, Write};
use std::sync::Arc;

fn main() {
    let by_number: HashMap<u64, String> = (0..5000).map(|i| (i, "v".repeat(40 + i as usize % 20))).collect();
    let maps: Vec<HashMap<u32, u64>> = (0..300).map(|i| (0..20 + i % 50).map(|j| (j, u64::from(j))).collect()).collect();
    let tree: BTreeMap<u64, u64> = (0..20000).map(|i| (i, i)).collect();
    let shared: Vec<Arc<[u64; 6]>> = (0..2000).map(|i| Arc::new([i; 6])).collect();
    let again = shared.clone();
    let rows: Vec<Vec<u64>> = (0..3000).map(|i| (0..i % 40 + 5).collect()).collect();
    let boxes: Vec<Box<[u64; 9]>> = (0..1000).map(|i| Box::new([i; 9])).collect();
    let queue: VecDeque<u64> = (0..1000).collect();
    println!("ready");
    std::io::stdout().flush().unwrap();
    let _ = std::io::stdin().read(&mut [0u8; 1]);
    let counts = [by_number.len(), maps.len(), tree.len(), shared.len(), again.len(), rows.len(), boxes.len(), queue.len()];
    println!("{:?}", counts);
}
