//! Stage join: allocations meet their frees, and become counters per site and per process.

mod addresses;
mod blocks;
mod cgroups;
mod command_line;
mod duty_cycle;
mod estimate;
mod interner;
mod joiner;
mod keyed_hash;
mod location_cache;
mod merge_ended;
mod modules;
mod peak;
mod processes;
mod regions;
mod spaces;
#[cfg(test)]
pub(crate) mod tests;
mod threads;
mod update;

pub use joiner::Joiner;
pub use merge_ended::Room;
pub use modules::OpenFiles;
pub use processes::Sampled;
pub use update::{
    Allocator, Completeness, DutyCycle, Errors, Kind, Location, LocationId, Module, ModuleId,
    Process, ProcessId, Quality, RateChange, Site, SiteId, Stack, StackId, ThreadNameId, Totals,
    Update,
};
