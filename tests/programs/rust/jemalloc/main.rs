//! A Rust program whose allocator is jemalloc, the way services have it: tikv-jemallocator as the global allocator.
//!
//!     je_rust recorder RECORD park|after THREADS ROUNDS
//!     je_rust tickers RECORD WORK_MS ROLE...
//!     je_rust prof RECORD THREADS
//!
//! Each does what the C program je_MODE.c does, with the same record (je_stage.h), says "ready" and obeys one-byte commands.

use std::ffi::{c_void, CStr};
use std::mem::{forget, size_of};
use std::os::raw::{c_char, c_int};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{mpsc, Arc, Barrier};
use std::time::{Duration, Instant};

use tikv_jemalloc_sys as je;

#[global_allocator]
static GLOBAL: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

// ------------------------------------------------------------------------------------------------ the record

const LIVE: u64 = 1;
const CACHED: u64 = 2;
const FREED: u64 = 3;
/// Freed while the standard library still allocated: its address may be the library's by now.
const REUSED: u64 = 4;
const JSON_BYTES: usize = 4 << 20;
const WORDS: usize = 4096;

#[repr(C)]
struct Head {
    json_capacity: u64,
    json_bytes: u64,
    print_buffer: u64,
    block_capacity: u64,
    blocks: AtomicU64,
    words: [u64; WORDS],
}

#[repr(C)]
struct Block {
    address: u64,
    usable: u64,
    requested: u64,
    arena: u64,
    state: u64,
}

/// The head's address; 0 before there is a record.
static RECORD: AtomicUsize = AtomicUsize::new(0);

fn fail(why: &str) -> ! {
    unsafe {
        libc::write(2, why.as_ptr() as *const c_void, why.len());
        libc::_exit(70)
    }
}

fn head() -> &'static mut Head {
    unsafe { &mut *(RECORD.load(SeqCst) as *mut Head) }
}

fn json() -> *mut u8 {
    (RECORD.load(SeqCst) + size_of::<Head>()) as *mut u8
}

fn block(number: usize) -> &'static mut Block {
    unsafe { &mut *((json() as usize + JSON_BYTES) as *mut Block).add(number) }
}

fn open_record(path: &str, blocks: usize) {
    let mut name = path.as_bytes().to_vec();
    name.push(0);
    let bytes = size_of::<Head>() + JSON_BYTES + blocks * size_of::<Block>();
    unsafe {
        let fd = libc::open(name.as_ptr() as *const c_char, libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC, 0o600);
        if fd < 0 || libc::ftruncate(fd, bytes as libc::off_t) != 0 {
            fail("the record file cannot be made\n");
        }
        let at = libc::mmap(null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, fd, 0);
        if at == libc::MAP_FAILED {
            fail("the record file cannot be mapped\n");
        }
        libc::close(fd);
        RECORD.store(at as usize, SeqCst);
    }
    head().json_capacity = JSON_BYTES as u64;
    head().block_capacity = blocks as u64;
}

/// Records a block that lives; returns its number in the record.
fn keep(address: *mut u8, requested: usize) -> usize {
    let number = head().blocks.fetch_add(1, SeqCst);
    if address.is_null() || number >= head().block_capacity {
        fail("out of memory, or the record is full\n");
    }
    let entry = block(number as usize);
    let mut arena: u32 = 0;
    let mut length = size_of::<u32>();
    let mut pointer = address;
    let known = unsafe {
        entry.usable = je::malloc_usable_size(address as *const _) as u64;
        std::ptr::write_bytes(address, 0x5a, requested.min(64));
        je::mallctl(
            b"arenas.lookup\0".as_ptr() as *const c_char,
            &mut arena as *mut u32 as *mut c_void,
            &mut length,
            &mut pointer as *mut *mut u8 as *mut c_void,
            size_of::<*mut u8>(),
        ) == 0
    };
    entry.requested = requested as u64;
    entry.arena = if known { arena as u64 } else { u64::MAX };
    entry.state = LIVE;
    entry.address = address as u64;
    number as usize
}

/// A block of the global allocator, as a Vec has it.
fn new_vec(size: usize) -> usize {
    let mut vec: Vec<u8> = Vec::with_capacity(size);
    let number = keep(vec.as_mut_ptr(), size);
    forget(vec);
    number
}

fn drop_vec(number: usize, state: u64) {
    let entry = block(number);
    entry.state = state;
    drop(unsafe { Vec::from_raw_parts(entry.address as *mut u8, 0, entry.requested as usize) });
}

fn new_with_flags(size: usize, flags: c_int) -> usize {
    keep(unsafe { je::mallocx(size, flags) } as *mut u8, size)
}

fn drop_with_flags(number: usize, flags: c_int, state: u64) {
    block(number).state = state;
    unsafe { je::dallocx(block(number).address as *mut _, flags) }
}

// ------------------------------------------------------------------------------------------------ mallctl

fn get<T: Default>(name: &[u8]) -> Option<T> {
    let mut value = T::default();
    let mut length = size_of::<T>();
    let code = unsafe { je::mallctl(name.as_ptr() as *const c_char, &mut value as *mut T as *mut c_void, &mut length, null_mut(), 0) };
    if code == 0 {
        Some(value)
    } else {
        None
    }
}

fn must<T: Default>(name: &[u8]) -> T {
    get(name).unwrap_or_else(|| fail("a mallctl cannot be read\n"))
}

fn set<T>(name: &[u8], mut value: T) {
    let bytes = size_of::<T>();
    let new = if bytes == 0 { null_mut() } else { &mut value as *mut T as *mut c_void };
    if unsafe { je::mallctl(name.as_ptr() as *const c_char, null_mut(), null_mut(), new, bytes) } != 0 {
        fail("a mallctl cannot be written\n");
    }
}

fn named(form: &str, index: u32) -> Vec<u8> {
    (form.replace("{}", &index.to_string()) + "\0").into_bytes()
}

fn new_arena(dirty_decay_ms: isize, muzzy_decay_ms: isize) -> u32 {
    let arena = must::<u32>(b"arenas.create\0");
    set(&named("arena.{}.dirty_decay_ms", arena), dirty_decay_ms);
    set(&named("arena.{}.muzzy_decay_ms", arena), muzzy_decay_ms);
    arena
}

// ------------------------------------------------------------------------------------------------ the stage

fn ready() {
    unsafe {
        libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0);
        if libc::write(1, b"ready\n".as_ptr() as *const c_void, 6) != 6 {
            libc::_exit(71);
        }
    }
}

fn command() -> u8 {
    let mut byte = 0u8;
    unsafe {
        if libc::read(0, &mut byte as *mut u8 as *mut c_void, 1) != 1 {
            libc::_exit(0);
        }
    }
    byte
}

fn rest() -> ! {
    loop {
        unsafe { libc::pause() };
    }
}

/// xorshift64*, as in stage.h.
fn random(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_F491_4F6C_DD1D)
}

fn request(state: &mut u64) -> usize {
    let kind = random(state) % 1000;
    let r = random(state);
    (match kind {
        0..=599 => 1 + r % 120,
        600..=819 => 121 + r % 912,
        820..=939 => 1033 + r % 3072,
        940..=989 => 4097 + r % 28672,
        _ => 32769 + r % 67232,
    }) as usize
}

fn next_class(size: usize) -> usize {
    unsafe { je::nallocx(size + if size < 4096 { 1 } else { size / 8 }, 0) }
}

// ------------------------------------------------------------------------------------------------ its statistics

struct Text {
    depth: i32,
    quoted: bool,
    park: bool,
}

/// malloc_stats_print's write callback; with `park` it stays for good once the document is closed.
unsafe extern "C" fn take_text(opaque: *mut c_void, piece: *const c_char) {
    let text = &mut *(opaque as *mut Text);
    let bytes = CStr::from_ptr(piece).to_bytes();
    let record = head();
    if record.json_bytes == 0 {
        record.print_buffer = piece as u64;
    }
    if record.json_bytes as usize + bytes.len() > JSON_BYTES {
        fail("the JSON is too long\n");
    }
    std::ptr::copy_nonoverlapping(bytes.as_ptr(), json().add(record.json_bytes as usize), bytes.len());
    record.json_bytes += bytes.len() as u64;
    for byte in bytes {
        match byte {
            b'"' => text.quoted = !text.quoted,
            b'{' if !text.quoted => text.depth += 1,
            b'}' if !text.quoted => {
                text.depth -= 1;
                if text.depth == 0 && text.park {
                    ready();
                    loop {
                        command();
                    }
                }
            }
            _ => (),
        }
    }
}

fn print_stats(park: bool) {
    let mut text = Text { depth: 0, quoted: false, park };
    head().json_bytes = 0;
    let print: unsafe extern "C" fn(Option<unsafe extern "C" fn(*mut c_void, *const c_char)>, *mut c_void, *const c_char) = je::malloc_stats_print;
    unsafe { print(Some(take_text), &mut text as *mut Text as *mut c_void, b"J\0".as_ptr() as *const c_char) };
}

// ------------------------------------------------------------------------------------------------ recorder

/// jemalloc's flags of mallocx(3); the crate has other forms of them in each release.
const NO_TCACHE: c_int = 1 << 8;
const SLOTS: usize = 1500;
const CACHED_EACH: usize = 6;
const FILL: usize = 3000;

fn fill_arena(arena: u32, state: &mut u64) {
    let flags = (arena as c_int + 1) << 20 | NO_TCACHE;
    let mine: Vec<usize> = (0..FILL).map(|_| new_with_flags(request(state), flags)).collect();
    for number in &mine[..FILL * 2 / 3] {
        drop_with_flags(*number, NO_TCACHE, FREED); // no one else allocates in this arena
    }
}

fn explicit_arenas() {
    let mut state = 424_242;
    fill_arena(new_arena(-1, 0), &mut state);
    let muzzy = new_arena(1, -1);
    fill_arena(muzzy, &mut state);
    let decay = named("arena.{}.decay", muzzy);
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(5));
        set(&decay, ());
    }
    let purged = new_arena(-1, -1);
    fill_arena(purged, &mut state);
    set(&named("arena.{}.purge", purged), ());
}

fn explicit_cache() {
    let index = must::<u32>(b"tcache.create\0");
    let flags = (index as c_int + 2) << 8;
    let mut mine = Vec::new();
    let mut size = 8;
    while size <= 16384 {
        mine.extend((0..CACHED_EACH).map(|_| new_with_flags(size, flags)));
        size = unsafe { je::nallocx(3 * size, 0) };
    }
    set(b"tcache.flush\0", index); // what jemalloc put in beside the blocks that were asked for
    for number in mine {
        drop_with_flags(number, flags, CACHED);
    }
}

fn every_class() {
    let mut size = 8;
    while size <= 4 << 20 {
        new_vec(size);
        size = next_class(size);
    }
    new_vec(17 << 20);
    drop_vec(new_vec(9 << 20), REUSED);
}

/// From the barrier on nothing is allocated any more: what is freed before the flush is free, and the cache holds what is freed
/// after it and nothing else.
fn known_cache(barrier: &Barrier, slots: &[Option<usize>]) {
    let mut mine = Vec::with_capacity(128 * CACHED_EACH);
    let largest = must::<usize>(b"arenas.tcache_max\0");
    let mut size = 8;
    while size <= largest && mine.len() < 128 * CACHED_EACH {
        mine.extend((0..CACHED_EACH).map(|_| new_vec(size)));
        size = next_class(size);
    }
    barrier.wait();
    for number in slots.iter().step_by(2).flatten() {
        drop_vec(*number, FREED);
    }
    let enabled = must::<u8>(b"thread.tcache.enabled\0") != 0;
    if enabled {
        set(b"thread.tcache.flush\0", ());
    }
    for (place, number) in mine.iter().enumerate() {
        if place % 3 != 0 {
            drop_vec(*number, if enabled { CACHED } else { FREED });
        }
    }
    forget(mine);
}

fn rounds_of(thread: usize, rounds: usize, barrier: &Barrier, next: mpsc::Sender<usize>, gifts: mpsc::Receiver<usize>) {
    let mut state = 88_172_645_463_325_252 + thread as u64 * 7919;
    let mut mine: Vec<Option<usize>> = vec![None; SLOTS];
    barrier.wait();
    for _ in 0..rounds {
        for _ in 0..SLOTS {
            let slot = (random(&mut state) % SLOTS as u64) as usize;
            match (mine[slot].take(), random(&mut state) % 5) {
                (Some(old), 0) => next.send(old).unwrap(), // freed by the next thread
                (Some(old), _) => drop_vec(old, REUSED),
                (None, _) => (),
            }
            if random(&mut state) % 3 != 0 {
                mine[slot] = Some(new_vec(request(&mut state)));
            }
        }
        barrier.wait();
        while let Ok(old) = gifts.try_recv() {
            drop_vec(old, REUSED);
        }
        barrier.wait();
    }
    if thread == 0 {
        every_class();
        explicit_arenas();
        explicit_cache();
    }
    barrier.wait();
    known_cache(barrier, &mine);
    barrier.wait();
    forget((next, gifts, mine));
}

fn recorder(arguments: &[String]) {
    let park = arguments[1] == "park";
    let threads: usize = arguments[2].parse().unwrap();
    let rounds: usize = arguments[3].parse().unwrap();
    open_record(&arguments[0], 20000 + threads * (1000 + rounds * SLOTS));
    print_stats(false); // makes what every print needs, before any recorded block is freed
    let barrier = Arc::new(Barrier::new(threads));
    let (mut senders, mut receivers): (Vec<_>, Vec<_>) = (0..threads).map(|_| mpsc::channel()).unzip();
    senders.rotate_left(1);
    let (first_sender, first_receiver) = (senders.remove(0), receivers.remove(0));
    for (number, (next, gifts)) in senders.into_iter().zip(receivers).enumerate() {
        let barrier = barrier.clone();
        std::thread::spawn(move || {
            rounds_of(number + 1, rounds, &barrier, next, gifts);
            rest();
        });
    }
    rounds_of(0, rounds, &barrier, first_sender, first_receiver);
    print_stats(park);
}

// ------------------------------------------------------------------------------------------------ tickers

const ROLES: [&str; 6] = ["healthy", "frees-first", "free-only", "untouched", "one-malloc", "tcache-off"];
const MOST: usize = 32;
const BURST: usize = 20480;
const FREES: usize = 200;
const ARENAS: usize = 128;

struct Tickers {
    roles: Vec<usize>,
    work_ms: u64,
    gifts: Vec<usize>,
    tables: usize,
    barrier: Barrier,
}

static TICKERS: AtomicUsize = AtomicUsize::new(0);

fn tickers_state() -> &'static Tickers {
    unsafe { &*(TICKERS.load(SeqCst) as *const Tickers) }
}

fn works(role: usize) -> bool {
    matches!(ROLES[role], "healthy" | "frees-first" | "tcache-off")
}

fn light_work(work_ms: u64) {
    let end = Instant::now() + Duration::from_millis(work_ms);
    while Instant::now() < end {
        for _ in 0..64 {
            let vec: Vec<u8> = Vec::with_capacity(40000);
            unsafe { std::ptr::write_volatile(vec.as_ptr() as *mut u8, 1) };
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn burst(number: usize) {
    let table = (tickers_state().tables + number * BURST * 8) as *mut *mut u8;
    for place in 0..BURST {
        let mut vec: Vec<u8> = Vec::with_capacity(4000);
        unsafe {
            std::ptr::write_bytes(vec.as_mut_ptr(), 1, 4000);
            *table.add(place) = vec.as_mut_ptr();
        }
        forget(vec);
    }
    for place in 0..BURST {
        drop(unsafe { Vec::from_raw_parts(*table.add(place), 0, 4000) });
    }
}

/// A thread by pthread_create: the standard library's own would allocate before we could free. Rust's deallocation is
/// sdallocx, which has not the bug; free() from C code has.
extern "C" fn ticker_thread(argument: *mut c_void) -> *mut c_void {
    let number = argument as usize;
    let state = tickers_state();
    let role = state.roles[number];
    let words = &mut head().words[1 + 3 * number..4 + 3 * number];
    let name: &[u8] = [&b"healthy\0"[..], b"frees-first\0", b"free-only\0", b"untouched\0", b"one-malloc\0", b"tcache-off\0"][role];
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0) };
    words[0] = unsafe { libc::syscall(libc::SYS_gettid) } as u64;
    words[1] = role as u64;
    let gifts = &state.gifts[number * FREES..(number + 1) * FREES];
    match ROLES[role] {
        "frees-first" => unsafe { je::free(gifts[0] as *mut _) },
        "free-only" => gifts.iter().for_each(|gift| unsafe { je::free(*gift as *mut _) }),
        "one-malloc" => forget(Vec::<u8>::with_capacity(100)),
        "tcache-off" => set(b"thread.tcache.enabled\0", 0u8),
        _ => (),
    }
    if works(role) {
        burst(number);
        words[2] = must::<u32>(b"thread.arena\0") as u64 + 1;
    }
    loop {
        state.barrier.wait();
        state.barrier.wait();
        if works(role) {
            light_work(state.work_ms);
        }
    }
}

fn measure(place: usize) {
    set(b"epoch\0", 1u64);
    let arenas = must::<u32>(b"arenas.narenas\0");
    head().words[ARENAS] = arenas as u64;
    for arena in 0..arenas {
        let at = ARENAS + 1 + 4 * arena as usize;
        head().words[at + place] = get::<usize>(&named("stats.arenas.{}.pdirty", arena)).unwrap_or(0) as u64;
        head().words[at + 2 + place] = get::<u64>(&named("stats.arenas.{}.dirty_npurge", arena)).unwrap_or(u64::MAX);
    }
}

fn work_and_measure() {
    let barrier = &tickers_state().barrier;
    measure(0);
    barrier.wait();
    barrier.wait();
    measure(1);
}

fn tickers(arguments: &[String]) {
    open_record(&arguments[0], 0);
    let roles: Vec<usize> = arguments[2..].iter().map(|name| ROLES.iter().position(|role| role == name).unwrap_or_else(|| fail("there is no such role\n"))).collect();
    if roles.len() > MOST {
        fail("too many threads\n");
    }
    let count = roles.len();
    let tables = unsafe { libc::mmap(null_mut(), count * BURST * 8, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
    if tables == libc::MAP_FAILED {
        fail("no memory for the program's own tables\n");
    }
    let gifts = (0..count * FREES).map(|_| unsafe { je::malloc(64) } as usize).collect();
    let state = Tickers { roles, work_ms: arguments[1].parse().unwrap(), gifts, tables: tables as usize, barrier: Barrier::new(count + 1) };
    TICKERS.store(Box::into_raw(Box::new(state)) as usize, SeqCst);
    head().words[0] = count as u64;
    for number in 0..count {
        let mut id: libc::pthread_t = 0;
        if unsafe { libc::pthread_create(&mut id, null(), ticker_thread, number as *mut c_void) } != 0 {
            fail("a thread cannot be made\n");
        }
    }
    tickers_state().barrier.wait();
    work_and_measure();
    loop {
        ready();
        if command() == b'w' {
            work_and_measure();
        }
    }
}

// ------------------------------------------------------------------------------------------------ prof

#[inline(never)]
fn small_maker(number: usize) -> Vec<u8> {
    Vec::with_capacity(16 + number % 200)
}

#[inline(never)]
fn large_maker(number: usize) -> Vec<u8> {
    vec![0; 20000 + 37 * number]
}

#[inline(never)]
fn deep_maker(number: usize, depth: usize) -> Vec<u8> {
    let made = if depth > 0 { deep_maker(number, depth - 1) } else { Vec::with_capacity(3000 + number) };
    unsafe { std::ptr::read_volatile(&made.capacity()) }; // else the recursion were a loop
    made
}

fn make() -> Vec<Vec<u8>> {
    let mut mine = Vec::with_capacity(1200);
    for number in 0..400 {
        mine.push(small_maker(number));
        mine.push(large_maker(number));
        mine.push(deep_maker(number, number % 5));
    }
    let mut number = 0;
    mine.retain(|_| {
        number += 1;
        number % 3 != 0
    });
    mine
}

fn prof(arguments: &[String]) {
    open_record(&arguments[0], 0);
    let threads: usize = arguments[1].parse().unwrap();
    let barrier = Arc::new(Barrier::new(threads));
    for _ in 1..threads {
        let barrier = barrier.clone();
        std::thread::spawn(move || {
            let kept = make();
            barrier.wait();
            forget(kept);
            rest();
        });
    }
    let kept = make();
    barrier.wait();
    forget(kept);
    let path = format!("{}.heap\0", arguments[0]).into_bytes();
    set(b"prof.dump\0", path.as_ptr());
    set(b"prof.dump\0", path.as_ptr());
    forget(path); // it may be one of the blocks that were sampled
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(|mode| mode.as_str()) {
        Some("recorder") => recorder(&arguments[2..]),
        Some("tickers") => tickers(&arguments[2..]),
        Some("prof") => prof(&arguments[2..]),
        _ => fail("usage: je_rust recorder|tickers|prof RECORD ...\n"),
    }
    ready();
    loop {
        command();
    }
}
