//! The list of changed stubs in a process's own memory, for the next run: the installer may be killed before it undoes them.
//!
//! Stage: probes. The process can write there, so each entry is compared with the code when the list is read. Must not know who
//! writes.

use super::patch::Patch;

/// Bytes of a record: address, old and new bytes.
pub(super) const RECORD: usize = 16;

/// Most records.
pub(super) const MOST: usize = 240;

/// The records, as they are stored.
pub(super) fn encode(patches: &[Patch]) -> Vec<u8> {
    let bytes = |it: &Patch| {
        let halves = [it.old.to_le_bytes(), it.new.to_le_bytes()].concat();
        [it.address.to_le_bytes().as_slice(), &halves].concat()
    };
    patches.iter().take(MOST).flat_map(bytes).collect()
}

/// The records in some memory.
pub(super) fn decode(bytes: &[u8]) -> Vec<Patch> {
    let (records, _) = bytes.as_chunks::<RECORD>();
    let records = records.iter().take(MOST).map(|record| {
        let [address, values] = record.as_chunks::<8>().0 else {
            return None;
        };
        let [old, new] = values.as_chunks::<4>().0 else {
            return None;
        };
        let address = u64::from_le_bytes(*address);
        (address != 0).then_some(Patch {
            address,
            old: u32::from_le_bytes(*old),
            new: u32::from_le_bytes(*new),
        })
    });
    records.flatten().collect()
}

/// Adds changes to earlier ones. There is one for each address. If there are too many, the oldest are left out: they are the
/// least likely to be in place still.
pub(super) fn merge(earlier: Vec<Patch>, new: impl IntoIterator<Item = Patch>) -> Vec<Patch> {
    let mut all = earlier;
    for patch in new {
        all.retain(|it| it.address != patch.address);
        if all.len() >= MOST {
            all.remove(0);
        }
        all.push(patch);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that records are read as they were written, without empty ones, one for each address, and never too many.
    #[test]
    fn records_are_kept() {
        let patch = |address, new| Patch {
            address,
            old: 7,
            new,
        };
        let two = vec![patch(1 << 40, 1), patch(2 << 40, u32::MAX)];
        let mut bytes = encode(&two);
        bytes.extend([0; 40]);
        assert_eq!(decode(&bytes), two);
        assert_eq!(decode(&[0xff; 15]), []);
        let merged = merge(two, [patch(1 << 40, 2)]);
        assert_eq!(merged, [patch(2 << 40, u32::MAX), patch(1 << 40, 2)]);
        let many = merge(merged, (1..=MOST as u64).map(|at| patch(at, 3)));
        assert_eq!(many.len(), MOST);
        assert_eq!(encode(&many).len(), MOST * RECORD);
    }
}
