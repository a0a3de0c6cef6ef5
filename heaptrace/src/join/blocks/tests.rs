//! Blocks, compared with a standard table.

use std::collections::BTreeSet;

use super::*;
use crate::join::update::SiteId;
use crate::kernel::sizes;
use crate::random::numbers;

fn plain(address: u64, size: u64) -> Block {
    Block {
        site: SiteId(3),
        address,
        size,
        mean: 1,
        pauses: 0,
        time: 0,
        tid: 1,
        is_reallocated: false,
        mark: 0,
    }
}

/// A random block, which may not fit into a slot.
fn any(random: &mut impl FnMut(u64) -> u64) -> Block {
    Block {
        site: SiteId(random(u64::from(u32::MAX)) as u32),
        address: random(1 << 30) << random(34),
        size: random(1 << 20) << random(20),
        mean: 1 << random(20),
        pauses: random(3) as u32,
        time: random(1 << 52) << 7 >> random(20) & !127,
        tid: random(1 << 23) as u32,
        is_reallocated: random(2) == 0,
        mark: random(5) as u32,
    }
}

impl Blocks {
    fn slots(&self) -> usize {
        self.shards.iter().map(Shard::slots).sum()
    }
}

/// Check that random runs, which grow large and shrink again, remove every block once and unchanged, with ids
/// as processors give them.
#[test]
fn equals_a_standard_table() {
    let mut random = numbers(1);
    for round in 0..6 {
        let mut blocks = Blocks::default();
        let mut model = HashMap::default();
        let mut ids = Vec::new();
        let mut next = [0_u64; 4];
        for step in 0..120_000_u64 {
            // First the table grows, then it keeps its size, then it shrinks.
            let grows = [9, 5, 2][(step / 40_000) as usize];
            if random(10) < grows {
                let cpu = random(4);
                next[cpu as usize] += 1 + random(3) * round;
                let id = cpu << 48 | next[cpu as usize];
                let block = any(&mut random);
                blocks.insert(id, block);
                model.insert(id, block);
                ids.push(id);
            } else if !ids.is_empty() {
                let id = ids.swap_remove(random(ids.len() as u64) as usize);
                assert_eq!(blocks.remove(id), model.remove(&id));
                assert_eq!(blocks.remove(id), None);
            }
            assert_eq!(blocks.len + blocks.odd.len(), model.len());
        }
        // A block replaces one with the same id, whether they fit into slots or not.
        for id in ids.iter().take(100) {
            let block = any(&mut random);
            blocks.insert(*id, block);
            model.insert(*id, block);
        }
        assert_eq!(blocks.len + blocks.odd.len(), model.len());
        assert!(!blocks.odd.is_empty());
        let half = ids.len() / 2;
        for id in ids.drain(..half) {
            assert_eq!(blocks.remove(id), model.remove(&id));
        }
        let mut addresses: Vec<_> = model.values().map(|it| it.address).collect();
        let mut found: Vec<_> = blocks.into_addresses().collect();
        addresses.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, addresses);
    }
}

/// Check that the table never uses more memory for a block than the budget says, and that it frees memory
/// when blocks are removed.
#[test]
fn blocks_use_little_memory() {
    let mut blocks = Blocks::default();
    let mut most = 0.0_f64;
    for id in 1..=400_000_u64 {
        blocks.insert(id, plain(id << 4, 64));
        if id > 100 && id % 97 == 0 {
            most = most.max((blocks.slots() * size_of::<Slot>()) as f64 / id as f64);
        }
    }
    assert!(most <= sizes::AGENT_PER_BLOCK as f64, "{most} bytes");
    assert!(blocks.shards.len() > 40);
    for id in 101..=400_000 {
        assert!(blocks.remove(id).is_some());
    }
    let left = blocks.slots();
    assert!(left < 2000, "{left} slots for 100 blocks");
}

/// Check that ids which differ only in their processor and counter are spread evenly over the shards.
#[test]
fn ids_are_spread_over_shards() {
    let mut blocks = Blocks::default();
    for cpu in 0..64_u64 {
        for id in 1..=2000 {
            blocks.insert((cpu << 48) | (id * 8), plain(id, 1));
        }
    }
    let per_slot: BTreeSet<usize> = blocks.shards.iter().map(Shard::slots).collect();
    let (least, most) = (per_slot.first().unwrap(), per_slot.last().unwrap());
    assert!(most / least <= 3, "{least} to {most} slots");
}
