//! Addresses in the functions of a file.
//!
//! Part of bench. They are the same in each run.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};

/// How many there are.
pub(super) const COUNT: usize = 10_000;

/// An address in code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// As the linker placed it.
    pub(super) linked: u64,
    /// In the file.
    pub(super) offset: u64,
}

/// Distinct addresses in the functions of a file, spread over all of them, in random order.
pub(super) fn of(path: &Path) -> Result<Vec<Address>> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let file = object::File::parse(&*bytes).with_context(|| format!("{}", path.display()))?;
    let functions: BTreeSet<(u64, u64)> = file
        .symbols()
        .chain(file.dynamic_symbols())
        .filter(|it| it.kind() == SymbolKind::Text && it.is_definition() && it.size() > 1)
        .map(|it| (it.address(), it.size()))
        .collect();
    let functions: Vec<(u64, u64)> = functions.into_iter().collect();
    let segments: Vec<(u64, u64, u64)> = file
        .segments()
        .map(|it| (it.address(), it.file_range().1, it.file_range().0))
        .collect();
    let mut linked = BTreeSet::new();
    // More tries than addresses: small functions have few.
    for index in 0..16 * COUNT {
        if linked.len() == COUNT || functions.is_empty() {
            break;
        }
        let random = random(index as u64);
        let (start, size) = functions[random as usize % functions.len()];
        // Behind the first byte, as in the middle of a call.
        linked.insert(start + 1 + (random >> 32) % (size - 1));
    }
    let mut addresses: Vec<Address> = linked
        .into_iter()
        .filter_map(|linked| {
            let holds =
                |(start, size, _): &&(u64, u64, u64)| (*start..start + size).contains(&linked);
            let (start, _, offset) = segments.iter().find(holds)?;
            Some(Address {
                linked,
                offset: linked - start + offset,
            })
        })
        .collect();
    addresses.sort_by_key(|it| random(it.linked));
    if addresses.len() < COUNT {
        bail!("{} has too few functions", path.display());
    }
    Ok(addresses)
}

/// A number that looks random (SplitMix64).
fn random(seed: u64) -> u64 {
    let mut it = seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    it = (it ^ (it >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    it = (it ^ (it >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    it ^ (it >> 31)
}
