//! Stage join: allocations meet their frees, and become counters per site and per process.

mod addresses;
mod blocks;
mod cgroups;
mod command_line;
mod estimate;
mod fold;
mod interner;
mod joiner;
mod modules;
mod peak;
mod processes;
mod regions;
mod spaces;
#[cfg(test)]
pub(crate) mod tests;
mod threads;
mod turns;
mod update;

pub use fold::Room;
pub use joiner::Joiner;
pub use modules::OpenFiles;
pub use processes::Sampled;
pub use update::{
    Allocator, Completeness, Errors, Kind, Location, LocationId, Module, ModuleId, Process,
    ProcessId, Quality, RateChange, Site, SiteId, Stack, StackId, ThreadNameId, Totals, Turns,
    Update,
};
