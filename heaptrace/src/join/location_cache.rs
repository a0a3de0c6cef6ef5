//! Locations that were found before, so that what most stacks go through is not looked for in each.
//!
//! Stage: join. Of a fixed size: what was found last at a place of the table takes it. What is mapped where is of another version after
//! every change, so nothing is ever taken back.

use std::hash::BuildHasher as _;

use super::keyed_hash::KeyedHash;
use super::update::LocationId;

/// How many are remembered: a program of a thousand functions that allocate finds nearly all of them.
const PLACES: usize = 1 << 13;

/// See the head of this file.
#[derive(Debug)]
pub(super) struct LocationCache {
    places: Vec<Found>,
    key: KeyedHash,
}

#[derive(Clone, Copy, Debug)]
struct Found {
    /// Of what was mapped when it was found; 0 for nothing.
    version: u64,
    address: u64,
    location: LocationId,
}

impl Default for LocationCache {
    fn default() -> Self {
        let nothing = Found {
            version: 0,
            address: 0,
            location: LocationId(0),
        };
        Self {
            places: vec![nothing; PLACES],
            key: KeyedHash::default(),
        }
    }
}

impl LocationCache {
    /// The location of an address, among mappings of a version; found anew where it is not known.
    pub(super) fn get(
        &mut self,
        version: u64,
        address: u64,
        find: impl FnOnce() -> LocationId,
    ) -> LocationId {
        let hash = self.key.hash_one((version, address));
        let Some(place) = self.places.get_mut(hash as usize % PLACES) else {
            return find();
        };
        if version == 0 || place.version != version || place.address != address {
            *place = Found {
                version,
                address,
                location: find(),
            };
        }
        place.location
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that what is known is not looked for again, that of another version or without one it is, and that those which
    /// find no place of their own are told apart.
    #[test]
    fn by_version_and_address() {
        let mut known = LocationCache::default();
        let mut looked = 0;
        let mut of = |version, address: u64| {
            known.get(version, address, || {
                looked += 1;
                LocationId((version * 1_000_000 + address) as u32)
            })
        };
        for _ in 0..3 {
            assert_eq!(of(1, 5), LocationId(1_000_005));
        }
        assert_eq!(of(2, 5), LocationId(2_000_005));
        assert_eq!((of(0, 5), of(0, 5)), (LocationId(5), LocationId(5)));
        for _ in 0..2 {
            for address in 0..3 * PLACES as u64 {
                assert_eq!(of(1, address), LocationId(1_000_000 + address as u32));
            }
        }
        assert!(looked >= 4 + 3 * PLACES - 1, "{looked}");
    }
}
