//! Stage join: brings frees to their allocations, and counts both by site and by process.

mod address_spaces;
mod addresses;
mod block_changes;
mod block_log;
mod block_sizes;
mod block_sums;
mod blocks;
mod cgroups;
mod code_ranges;
mod command_line;
mod coverage;
mod duty_cycle;
mod earlier;
mod end;
mod estimate;
mod generations;
pub mod histogram;
mod ids;
mod inspected;
mod interner;
mod java;
mod javascript;
mod jit;
mod joiner;
mod keyed_hash;
mod language_frames;
mod ledger;
mod live_limits;
mod location_cache;
mod mappings;
mod marks;
mod memory_groups;
mod memory_map;
mod merge_ended;
mod modules;
mod orphans;
mod overhead;
mod own_peaks;
mod packed_addresses;
mod peak;
mod process;
mod processes;
mod program_name;
mod python;
mod reachability;
mod reasons;
mod recent;
mod regions;
mod rounded_sizes;
mod run_facts;
mod sent_stack;
mod sites;
mod size_classes;
mod stacks;
mod temporary;
#[cfg(test)]
pub(crate) mod tests;
mod threads;
mod traced;
mod update;
mod usage;
mod usage_sums;
mod usages;

pub use addresses::{CodeInFile, Follow};
pub use block_changes::{BlockChanges, BlockOwner, BornBlock, FreedBlock, HowFreed};
pub use block_sizes::BlockSizes;
pub use block_sums::{BlockFate, BlockSums};
pub use coverage::ReachedProcess;
pub use end::{End, EndCause, KilledAt};
pub use estimate::weight;
pub use inspected::{Inspected, InspectedStack, LiveBlock};
pub use javascript::ReadFrames;
pub use joiner::{GeneratedCode, Joiner, RunningImage};
pub use marks::{Exceeded, Mark, MarkCause};
pub use memory_map::{MappedPart, MemoryMap};
pub use merge_ended::EndedLimits;
pub use modules::OpenFiles;
pub use overhead::Overhead;
pub use process::Sampled;
pub use reachability::{Reachability, UnreachableSite, UnreachableSum};
pub use reasons::{Loss, Note};
pub use size_classes::Family;
pub use update::{
    Allocator, Completeness, DutyCycle, Errors, Function, FunctionId, Generation, GenerationId,
    Kind, Language, Location, LocationId, Memory, Module, ModuleId, OwnPeak, Process, ProcessId,
    Quality, RateChange, ShortLived, Site, SiteId, Stack, StackId, ThreadNameId, Totals, Traced,
    Unseen, Update,
};
pub use usage::{Bucket, Rounding, RoundingClass, Tally, Usage};
