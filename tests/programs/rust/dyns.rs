// Makes 500 vectors of boxed trait objects, 4 to 11 in each, and 500 structs that begin with one; says `ready` and waits for its input to end.

use std::io::{Read, Write};

trait Shape {
    fn area(&self) -> f64;
    fn name(&self) -> String {
        String::new()
    }
}
struct Circle {
    radius: f64,
    tag: [u64; 4],
}
struct Square {
    side: f64,
}
struct Named {
    name: String,
    number: u64,
}
impl Shape for Circle {
    fn area(&self) -> f64 {
        self.radius * self.tag[0] as f64
    }
}
impl Shape for Square {
    fn area(&self) -> f64 {
        self.side
    }
}
impl Shape for Named {
    fn area(&self) -> f64 {
        self.name.len() as f64 + self.number as f64
    }
}
#[repr(C)]
struct Owner {
    shape: Box<dyn Shape>,
    id: u64,
    rest: [u64; 3],
}

fn main() {
    let mut groups: Vec<Vec<Box<dyn Shape>>> = Vec::new();
    let mut owners: Vec<Box<Owner>> = Vec::new();
    for i in 0..500u64 {
        let mut one: Vec<Box<dyn Shape>> = Vec::new();
        for k in 0..(4 + i % 8) {
            match (i + k) % 3 {
                0 => one.push(Box::new(Circle { radius: 1.0, tag: [k; 4] })),
                1 => one.push(Box::new(Square { side: 2.0 })),
                _ => one.push(Box::new(Named { name: format!("name {}", k), number: k })),
            }
        }
        groups.push(one);
        owners.push(Box::new(Owner { shape: Box::new(Circle { radius: 3.0, tag: [i; 4] }), id: i, rest: [i; 3] }));
    }
    let of_groups = groups.iter().flatten().map(|one| one.area() + one.name().len() as f64).sum::<f64>();
    let of_owners = owners.iter().map(|one| one.shape.area() + one.id as f64 + one.rest[0] as f64).sum::<f64>();
    assert!(of_groups + of_owners > 0.0);
    println!("ready");
    std::io::stdout().flush().unwrap();
    let mut rest = String::new();
    std::io::stdin().read_to_string(&mut rest).unwrap();
    println!("{}", groups.len() + owners.len());
}
