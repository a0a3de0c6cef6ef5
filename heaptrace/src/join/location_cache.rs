//! A cache of locations, so that addresses which many stacks share are looked up once.
//!
//! Stage: join. The table has a fixed size: a new location replaces the old one in its slot. Every change of
//! an address space gives it another version, so no entry ever has to be invalidated.

use std::hash::BuildHasher as _;

use super::keyed_hash::KeyedHash;
use super::update::LocationId;

/// The number of slots: a program with a thousand functions that allocate finds nearly all of them in the
/// cache.
const SLOTS: usize = 1 << 13;

/// The cached locations of all processes.
#[derive(Debug)]
pub(super) struct LocationCache {
    slots: Vec<Slot>,
    hash: KeyedHash,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The version of the address space; 0 if the slot is empty.
    version: u64,
    address: u64,
    location: LocationId,
}

impl Default for LocationCache {
    fn default() -> Self {
        let empty = Slot {
            version: 0,
            address: 0,
            location: LocationId(0),
        };
        Self {
            slots: vec![empty; SLOTS],
            hash: KeyedHash::default(),
        }
    }
}

impl LocationCache {
    /// The location of an address, in an address space of this version; `find` looks it up if it is not cached.
    pub(super) fn get(
        &mut self,
        version: u64,
        address: u64,
        find: impl FnOnce() -> LocationId,
    ) -> LocationId {
        let hash = self.hash.hash_one((version, address));
        let Some(slot) = self.slots.get_mut(hash as usize % SLOTS) else {
            return find();
        };
        if version == 0 || slot.version != version || slot.address != address {
            *slot = Slot {
                version,
                address,
                location: find(),
            };
        }
        slot.location
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a cached location is not looked up again, that one of another version or of none is, and that
    /// addresses with the same slot get their own locations.
    #[test]
    fn locations_are_cached_by_version_and_address() {
        let mut cache = LocationCache::default();
        let mut lookups = 0;
        let mut of = |version, address: u64| {
            cache.get(version, address, || {
                lookups += 1;
                LocationId((version * 1_000_000 + address) as u32)
            })
        };
        for _ in 0..3 {
            assert_eq!(of(1, 5), LocationId(1_000_005));
        }
        assert_eq!(of(2, 5), LocationId(2_000_005));
        assert_eq!((of(0, 5), of(0, 5)), (LocationId(5), LocationId(5)));
        for _ in 0..2 {
            for address in 0..3 * SLOTS as u64 {
                assert_eq!(of(1, address), LocationId(1_000_000 + address as u32));
            }
        }
        assert!(lookups >= 4 + 3 * SLOTS - 1, "{lookups}");
    }
}
