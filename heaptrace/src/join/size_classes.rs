//! What allocators round requests up to.
//!
//! Stage: join. Each family has its rule, as its current versions have it by default; tests compare them with sizes that real
//! allocators returned. What is beside a block (headers, tables) is no part of it. Knows nothing of blocks.

/// The number of families.
pub(super) const FAMILIES: usize = Family::ALL.len();

/// A family of allocators whose rounding is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// That of the GNU C library.
    Glibc,
    /// jemalloc.
    Jemalloc,
    /// tcmalloc, as gperftools have it.
    Tcmalloc,
    /// mimalloc.
    Mimalloc,
}

/// The classes of tcmalloc beyond multiples of 16 up to 256 bytes, with its pages of 8 KiB.
const TCMALLOC: [u32; 50] = [
    288, 320, 352, 384, 416, 448, 480, 512, 576, 640, 704, 768, 896, 1024, 1152, 1280, 1408, 1536,
    1792, 2048, 2304, 2560, 2816, 3072, 3328, 4096, 4608, 5120, 6144, 6656, 8192, 9216, 10240,
    12288, 13312, 16384, 20480, 24576, 26624, 32768, 40960, 49152, 57344, 65536, 73728, 81920,
    90112, 98304, 106_496, 114_688,
];

impl Family {
    /// All of them, in the order of their numbers in data files.
    pub const ALL: [Self; 4] = [Self::Glibc, Self::Jemalloc, Self::Tcmalloc, Self::Mimalloc];

    /// The family of an allocator of a kind, as processes have it.
    pub fn of_kind(kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|family| family.name() == kind)
    }

    /// Its name, which is also the kind of its allocators.
    pub fn name(self) -> &'static str {
        match self {
            Self::Glibc => "glibc",
            Self::Jemalloc => "jemalloc",
            Self::Tcmalloc => "tcmalloc",
            Self::Mimalloc => "mimalloc",
        }
    }

    /// Usable bytes beyond the requested ones.
    pub fn waste(self, size: u64) -> u64 {
        let usable = match self {
            Self::Glibc => glibc(size),
            Self::Jemalloc => quarters(size),
            Self::Tcmalloc => tcmalloc(size),
            Self::Mimalloc => mimalloc(size),
        };
        // A size that no allocator can give has none.
        usable.map_or(0, |usable| usable.saturating_sub(size))
    }
}

/// Chunks of multiples of 16 bytes, of which 8 are the size of the next one.
fn glibc(size: u64) -> Option<u64> {
    let chunk = size.checked_add(8)?.checked_next_multiple_of(16)?;
    Some(chunk.max(32) - 8)
}

/// 8, multiples of 16 up to 128, then four classes for each doubling.
fn quarters(size: u64) -> Option<u64> {
    match size {
        0..=8 => Some(8),
        9..=128 => size.checked_next_multiple_of(16),
        _ => size.checked_next_multiple_of(1 << ((size - 1).ilog2() - 2)),
    }
}

fn tcmalloc(size: u64) -> Option<u64> {
    match size {
        0..=8 => Some(8),
        9..=256 => size.checked_next_multiple_of(16),
        _ => {
            let class = TCMALLOC.partition_point(|class| u64::from(*class) < size);
            match TCMALLOC.get(class) {
                Some(class) => Some(u64::from(*class)),
                None => size.checked_next_multiple_of(8 << 10),
            }
        }
    }
}

/// As [`quarters`] up to 128 KiB. Larger blocks are made of pages, whose size grows with the block.
fn mimalloc(size: u64) -> Option<u64> {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    if size <= 128 * KIB {
        return quarters(size);
    }
    size.checked_next_multiple_of(match size {
        size if size <= 512 * KIB => 64 * KIB,
        size if size <= 8 * MIB => 512 * KIB,
        size if size <= 32 * MIB => MIB,
        _ => 4 * MIB,
    })
}
