//! The addresses of a stack, in little memory.
//!
//! Stage: join. A stack is resolved when it arrives. Its addresses are kept because code can be replaced while
//! its process runs: then they mean something else. Neighbours on a stack are often close in memory, so each
//! address is stored as its difference from the one before, in as few groups of seven bits as it needs.

/// Return addresses, innermost first.
#[derive(Debug)]
pub(super) struct PackedAddresses(Box<[u8]>);

/// Set in every byte of a difference but the last.
const MORE: u8 = 0x80;

impl PackedAddresses {
    pub(super) fn new(addresses: &[u64]) -> Self {
        let mut bytes = Vec::with_capacity(addresses.len() * 4);
        let mut before = 0;
        for address in addresses {
            let difference = address.wrapping_sub(before) as i64;
            before = *address;
            // The sign becomes the lowest bit, so that small negative differences are short, too.
            let mut left = (difference << 1 ^ difference >> 63) as u64;
            while left >= u64::from(MORE) {
                bytes.push(left as u8 | MORE);
                left >>= 7;
            }
            bytes.push(left as u8);
        }
        Self(bytes.into_boxed_slice())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        let mut address = 0_u64;
        self.0
            .split_inclusive(|byte| byte & MORE == 0)
            .map(move |bytes| {
                let groups = bytes.iter().rev();
                let packed = groups.fold(0, |sum, byte| sum << 7 | u64::from(byte & !MORE));
                address = address.wrapping_add(packed >> 1 ^ (packed & 1).wrapping_neg());
                address
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::numbers;

    /// Check that any addresses come back as they were, and that those of a usual stack take half of their
    /// memory.
    #[test]
    fn addresses_come_back() {
        let mut random = numbers(1);
        for length in 0..200 {
            let addresses: Vec<u64> = (0..length)
                .map(|_| random(u64::MAX) >> random(64))
                .collect();
            let packed = PackedAddresses::new(&addresses);
            assert_eq!(packed.iter().collect::<Vec<_>>(), addresses);
        }
        let ends = [0, u64::MAX, 0, 1 << 63, (1 << 63) - 1, u64::MAX];
        assert_eq!(PackedAddresses::new(&ends).iter().collect::<Vec<_>>(), ends);
        let usual: Vec<u64> = (0..32)
            .map(|_| 0x7f00_1234_0000 + (random(4) << 20) + random(1 << 18))
            .collect();
        let packed = PackedAddresses::new(&usual);
        assert_eq!(packed.iter().collect::<Vec<_>>(), usual);
        assert!(packed.0.len() * 2 <= usual.len() * 8, "{}", packed.0.len());
    }
}
