//! The countdowns of a sample, its settings, and classes of sizes.

/// The countdown of a CPU to its next sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Countdown {
    /// Bytes left up to the sampled byte, including it. As a signed number, it is 0 or negative until the
    /// next countdown starts.
    pub left: u64,
    /// Mean bytes between samples that it started with.
    pub mean: u64,
    /// 1 from when a recorded call begins on this CPU until one ends. A hint: threads change their CPU.
    pub has_pending: u64,
}

/// Entries of the map of settings, which the agent changes during the run.
pub mod setting {
    /// Mean bytes between samples; 1 if all calls are recorded.
    pub const MEAN: u32 = 0;
    /// The power of two by which the mean is larger for processes without an entry of their own.
    pub const SHIFT: u32 = 1;
    /// How many threads wait to be stopped.
    pub const STOPS: u32 = 2;
    /// Number of settings.
    pub const COUNT: u32 = 3;
}

/// Number of classes of sizes: one for 0, and one for each power of two.
pub const SIZE_CLASSES: u32 = 65;

/// The class of a size: 0 for 0; for other sizes one more than the exponent of the largest power of two that
/// fits.
#[inline(always)]
pub const fn size_class(size: u64) -> u32 {
    u64::BITS - size.leading_zeros()
}

const _: () = assert!(size_of::<Countdown>() == 24);
