//! Counts words and their positions, many times: a Rust program with typical allocations.
//!
//! usage: words ROUNDS

use std::collections::BTreeMap;

fn main() {
    let rounds = std::env::args().nth(1).and_then(|it| it.parse().ok()).unwrap_or(1);
    let mut state = 1_u64;
    let mut longest = 0;
    for _ in 0..rounds {
        let mut places: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for place in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            places.entry(format!("word{}", (state >> 33) % 3000)).or_default().push(place);
        }
        longest = longest.max(places.values().map(Vec::len).max().unwrap_or(0));
    }
    println!("{longest}");
}
