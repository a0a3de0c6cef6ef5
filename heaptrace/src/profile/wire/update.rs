//! The messages of an update, and of its tables and records.
//!
//! Stage: profile.

use prost::Message;

use super::changes::{Changes, WrittenSites};
use super::counters::Counters;
use super::duty_cycle::DutyCycle;
use super::error::WireError;
use super::function::Function;
use super::killed_at::KilledAt;
use super::marks::{Exceeded, Generation, Mark};
use super::memory::Memory;
use super::parts::{Part, Parts};
use super::process_end::ProcessEnd;
use super::quality::QualityMessage;
use super::reachability::Reachability;
use super::site::Site;
use super::started::Started;
use super::traced::Traced;
use super::usage::Usage;
use crate::join::{self, Completeness, FunctionId, LocationId, ModuleId, ProcessId};

/// [`join::Update`], or a part of one, as a message.
#[derive(Clone, PartialEq, Message)]
pub(in crate::profile) struct UpdateMessage {
    /// Whether the next chunk continues this update.
    #[prost(bool, tag = "1")]
    pub(in crate::profile) more: bool,
    #[prost(uint64, tag = "2")]
    elapsed_ns: u64,
    #[prost(message, repeated, tag = "3")]
    modules: Vec<Module>,
    #[prost(message, repeated, tag = "4")]
    locations: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    stacks: Vec<Stack>,
    #[prost(message, repeated, tag = "6")]
    processes: Vec<Process>,
    #[prost(message, repeated, tag = "7")]
    sites: Vec<Site>,
    #[prost(message, optional, tag = "8")]
    totals: Option<Counters>,
    #[prost(message, optional, tag = "9")]
    quality: Option<QualityMessage>,
    #[prost(uint64, repeated, tag = "10")]
    sizes: Vec<u64>,
    #[prost(message, repeated, tag = "11")]
    rates: Vec<Rate>,
    #[prost(string, repeated, tag = "20")]
    threads: Vec<String>,
    #[prost(message, repeated, tag = "21")]
    started: Vec<Started>,
    #[prost(message, repeated, tag = "22")]
    functions: Vec<Function>,
    #[prost(message, repeated, tag = "23")]
    usages: Vec<Usage>,
    #[prost(message, repeated, tag = "30")]
    marks: Vec<Mark>,
    #[prost(message, repeated, tag = "31")]
    generations: Vec<Generation>,
    #[prost(message, repeated, tag = "40")]
    changes: Vec<Changes>,
    #[prost(message, repeated, tag = "50")]
    exceeded: Vec<Exceeded>,
    #[prost(message, repeated, tag = "60")]
    reachability: Vec<Reachability>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Rate {
    #[prost(uint64, tag = "1")]
    at_ns: u64,
    #[prost(uint32, optional, tag = "2")]
    process: Option<u32>,
    #[prost(uint64, tag = "3")]
    mean_bytes: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Module {
    #[prost(string, tag = "1")]
    path: String,
    #[prost(bytes = "vec", tag = "2")]
    build_id: Vec<u8>,
    #[prost(uint64, tag = "3")]
    text_start: u64,
    #[prost(uint64, tag = "4")]
    text_end: u64,
    #[prost(uint64, tag = "5")]
    text_offset: u64,
    #[prost(string, tag = "6")]
    root: String,
    #[prost(string, tag = "20")]
    started_as: String,
    #[prost(uint64, optional, tag = "21")]
    text_address: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Location {
    #[prost(uint32, optional, tag = "1")]
    module: Option<u32>,
    #[prost(uint64, tag = "2")]
    address: u64,
    #[prost(uint32, optional, tag = "20")]
    function: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Stack {
    #[prost(uint32, repeated, tag = "1")]
    locations: Vec<u32>,
    #[prost(uint32, tag = "2")]
    completeness: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Allocator {
    #[prost(string, tag = "1")]
    path: String,
    #[prost(string, tag = "2")]
    kind: String,
    #[prost(string, repeated, tag = "3")]
    hooks: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Process {
    #[prost(uint32, tag = "1")]
    id: u32,
    #[prost(uint32, tag = "2")]
    pid: u32,
    #[prost(uint64, tag = "3")]
    start_time_ns: u64,
    #[prost(string, tag = "4")]
    command: String,
    #[prost(string, tag = "5")]
    cgroup: String,
    #[prost(bool, tag = "6")]
    ended: bool,
    #[prost(message, optional, tag = "7")]
    totals: Option<Counters>,
    #[prost(uint64, tag = "8")]
    untracked_frees: u64,
    #[prost(uint64, tag = "9")]
    failed_allocations: u64,
    #[prost(message, repeated, tag = "10")]
    allocators: Vec<Allocator>,
    #[prost(uint64, tag = "12")]
    lost: u64,
    #[prost(uint64, tag = "13")]
    merged: u64,
    #[prost(string, tag = "20")]
    command_line: String,
    #[prost(message, optional, tag = "21")]
    duty_cycle: Option<DutyCycle>,
    #[prost(message, optional, tag = "22")]
    memory: Option<Memory>,
    #[prost(message, optional, tag = "23")]
    traced: Option<Traced>,
    #[prost(message, optional, tag = "30")]
    end: Option<ProcessEnd>,
    #[prost(message, optional, tag = "31")]
    killed_at: Option<KilledAt>,
}

impl UpdateMessage {
    /// An update in parts of at most about `max_size` bytes, after those whose sites were written.
    pub(in crate::profile) fn parts(
        update: &join::Update,
        written: &mut WrittenSites,
        max_size: usize,
    ) -> Vec<Self> {
        let (sites, changes) = written.split(&update.sites);
        let mut parts = Parts::<Self>::new(max_size);
        for module in &update.modules {
            parts.add(Module::from(module), |part| &mut part.modules);
        }
        for started in &update.started {
            parts.add(Started::new(started), |part| &mut part.started);
        }
        for function in &update.functions {
            parts.add(Function::from(function), |part| &mut part.functions);
        }
        for location in &update.locations {
            parts.add(Location::from(location), |part| &mut part.locations);
        }
        for stack in &update.stacks {
            parts.add(Stack::from(stack), |part| &mut part.stacks);
        }
        for thread in &update.threads {
            parts.add_text(thread, |part| &mut part.threads);
        }
        for (id, process) in &update.processes {
            parts.add(Process::new(*id, process), |part| &mut part.processes);
        }
        for (id, site) in sites {
            parts.add(Site::new(*id, site), |part| &mut part.sites);
        }
        for some in changes {
            parts.add(some, |part| &mut part.changes);
        }
        for (id, usage) in &update.usages {
            parts.add(Usage::new(*id, usage), |part| &mut part.usages);
        }
        for generation in &update.generations {
            parts.add(Generation::new(generation), |part| &mut part.generations);
        }
        for it in &update.reachability {
            parts.add(Reachability::from(it), |part| &mut part.reachability);
        }
        let mut parts = parts.all();
        if let Some(last) = parts.last_mut() {
            last.more = false;
            last.elapsed_ns = update.elapsed_ns;
            last.sizes.clone_from(&update.sizes);
            last.rates = update.rates.iter().map(Rate::from).collect();
            last.marks = update.marks.iter().map(Mark::from).collect();
            last.exceeded = update.exceeded.iter().map(Exceeded::from).collect();
            last.totals = Some(update.totals.into());
            last.quality = Some((&update.quality).into());
        }
        parts
    }
}

impl Part for UpdateMessage {
    fn set_more(&mut self) {
        self.more = true;
    }
}

impl From<&join::Module> for Module {
    fn from(module: &join::Module) -> Self {
        Self {
            path: module.path.clone(),
            build_id: module.build_id.clone(),
            text_start: module.text_start,
            text_end: module.text_end,
            text_offset: module.text_offset,
            root: module.root.clone(),
            started_as: module.started_as.clone(),
            text_address: module.text_address,
        }
    }
}

impl From<Module> for join::Module {
    fn from(module: Module) -> Self {
        Self {
            path: module.path,
            build_id: module.build_id,
            text_start: module.text_start,
            text_end: module.text_end,
            text_offset: module.text_offset,
            root: module.root,
            started_as: module.started_as,
            text_address: module.text_address,
        }
    }
}

impl From<&join::Location> for Location {
    fn from(location: &join::Location) -> Self {
        Self {
            module: location.module.map(|id| id.0),
            address: location.address,
            function: location.function.map(|id| id.0),
        }
    }
}

impl From<Location> for join::Location {
    fn from(location: Location) -> Self {
        Self {
            // No writer gives a location both, but a crafted file can.
            module: location
                .module
                .filter(|_| location.function.is_none())
                .map(ModuleId),
            address: location.address,
            function: location.function.map(FunctionId),
        }
    }
}

impl From<&join::Stack> for Stack {
    fn from(stack: &join::Stack) -> Self {
        Self {
            locations: stack.locations.iter().map(|id| id.0).collect(),
            completeness: match stack.completeness {
                Completeness::Complete => 1,
                Completeness::Truncated => 2,
                Completeness::Broken => 3,
            },
        }
    }
}

impl TryFrom<Stack> for join::Stack {
    type Error = WireError;

    fn try_from(stack: Stack) -> Result<Self, WireError> {
        Ok(Self {
            locations: stack.locations.into_iter().map(LocationId).collect(),
            completeness: match stack.completeness {
                1 => Completeness::Complete,
                2 => Completeness::Truncated,
                3 => Completeness::Broken,
                value => {
                    return Err(WireError::Unknown {
                        what: "stack completeness",
                        value,
                    });
                }
            },
        })
    }
}

impl From<&join::RateChange> for Rate {
    fn from(change: &join::RateChange) -> Self {
        Self {
            at_ns: change.at_ns,
            process: change.process.map(|id| id.0),
            mean_bytes: change.mean_bytes,
        }
    }
}

impl From<Rate> for join::RateChange {
    fn from(rate: Rate) -> Self {
        Self {
            at_ns: rate.at_ns,
            process: rate.process.map(ProcessId),
            mean_bytes: rate.mean_bytes,
        }
    }
}

impl Process {
    fn new(id: ProcessId, process: &join::Process) -> Self {
        Self {
            id: id.0,
            pid: process.pid,
            start_time_ns: process.start_time_ns,
            command: process.command.clone(),
            command_line: process.command_line.clone(),
            cgroup: process.cgroup.clone(),
            ended: process.ended,
            totals: Some(process.totals.into()),
            untracked_frees: process.untracked_frees,
            failed_allocations: process.failed_allocations,
            lost: process.lost,
            merged: process.merged,
            duty_cycle: process.duty_cycle.map(Into::into),
            memory: Some(process.memory.into()),
            traced: process.traced.map(Into::into),
            end: process.end.map(Into::into),
            killed_at: process.killed_at.as_ref().map(Into::into),
            allocators: process
                .allocators
                .iter()
                .map(|allocator| Allocator {
                    path: allocator.path.clone(),
                    kind: allocator.kind.clone(),
                    hooks: allocator.hooks.clone(),
                })
                .collect(),
        }
    }

    pub(super) fn into_plain(self) -> (ProcessId, join::Process) {
        let process = join::Process {
            pid: self.pid,
            start_time_ns: self.start_time_ns,
            command: self.command,
            command_line: self.command_line,
            cgroup: self.cgroup,
            ended: self.ended,
            totals: self.totals.unwrap_or_default().into(),
            untracked_frees: self.untracked_frees,
            failed_allocations: self.failed_allocations,
            lost: self.lost,
            merged: self.merged,
            duty_cycle: self.duty_cycle.map(Into::into),
            memory: self.memory.unwrap_or_default().into(),
            traced: self.traced.map(Into::into),
            end: self.end.and_then(ProcessEnd::into_plain),
            killed_at: self.killed_at.map(Into::into),
            allocators: self
                .allocators
                .into_iter()
                .map(|allocator| join::Allocator {
                    path: allocator.path,
                    kind: allocator.kind,
                    hooks: allocator.hooks,
                })
                .collect(),
        };
        (ProcessId(self.id), process)
    }
}
