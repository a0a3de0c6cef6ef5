//! The loaded kernel program, with this machine's constants and this run's sizes.
//!
//! Part of `kernel`. Knows the names of the object's programs, maps and globals. Must not know which
//! functions the programs are attached to.

use std::collections::BTreeSet;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result, anyhow};
use aya::maps::{Array, ArrayOfMaps, HashMap, Map, MapData, PerCpuArray, RingBuf};
use aya::programs::{ProgramError, ProgramFd, RawTracePoint, UProbe};
use aya::{Ebpf, EbpfLoader};
use heaptrace_common::counters::{COUNTERS, Counter};
use heaptrace_common::counting_filter::{BLOCK_SLOTS, block_slot};
use heaptrace_common::limits::SEGMENT_SLOTS;
use heaptrace_common::wire::{
    Block, BlockKey, FileKey, MAX_UNMAPPED, NameFilter, ProcessEnd, ProcessState, SIZE_CLASSES,
    StackKey, TableRef, Unmapped,
};

use super::helpers::Helpers;
use super::mapped_array::MappedArray;
use super::offsets;
use super::pod::{Plain, Wire};
use super::process_filter::ProcessFilter;
use super::sizes::Sizes;
use crate::config::{RunConfig, Target};
use crate::sys;

/// The kernel object that is built into this binary.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/heaptrace.bpf.o"));

/// Threads that load programs at the same time, beside the one that does other work.
const LOADERS: usize = 3;

/// The programs that follow fork, exec and exit, and their tracepoints.
const LIFECYCLE: [(&str, &str); 3] = [
    ("process_fork", "sched_process_fork"),
    ("process_exec", "sched_process_exec"),
    ("process_exit", "sched_process_exit"),
];

/// The map of unwind tables.
pub struct TableMap {
    map: HashMap<MapData, Wire<FileKey>, Wire<TableRef>>,
}

impl TableMap {
    /// Sets where the table of a file is.
    pub fn insert(&mut self, file: FileKey, table: TableRef) -> Result<()> {
        Ok(self.map.insert(Wire(file), Wire(table.of(file)), 0)?)
    }

    /// Removes the table of a file.
    pub fn remove(&mut self, file: FileKey) {
        // The file may have no entry.
        let _ = self.map.remove(&Wire(file));
    }
}

/// The loaded program.
pub struct Program {
    ebpf: Ebpf,
    /// With more unread bytes than this, the ring is filling up.
    filling_bytes: u32,
    /// Most entries of the live map.
    max_live: u32,
    /// How many blocks of the live map have an address in each slot; only in a partial run.
    block_filter: Option<MappedArray>,
    /// By which the kernel program recognizes calls from the fast path's code.
    fast_cookie: u64,
}

impl Program {
    /// Loads the object into the kernel and attaches the programs that follow processes. Probes are attached
    /// later.
    pub fn load(config: &RunConfig, filter: &ProcessFilter, helpers: Helpers) -> Result<Self> {
        let offsets = offsets::of_kernel()?;
        // Only a run for all processes reaches the agent.
        let agent = match config.target {
            Target::All => std::process::id(),
            _ => 0,
        };
        let is_one_by_one = config.target == Target::All && !config.from_birth;
        let is_partial = config.sampling.is_partial();
        let constants = [
            ("AGENT_TGID", agent),
            ("GUARDIAN_TGID", helpers.guardian),
            ("INSTALLER_TGID", helpers.installer.unwrap_or(0)),
            ("SELECTION", filter.criteria),
            ("MAX_STACK_DEPTH", config.max_stack_depth),
            ("ONE_BY_ONE", u32::from(is_one_by_one)),
            ("FAST", config.way()),
            ("PARTIAL", u32::from(is_partial)),
        ];
        let seed = sys::random().context("getrandom")?;
        // Never 0: calls that must not be taken for the fast path's have that.
        let fast_cookie = sys::random().context("getrandom")? | 1;
        let log_level: u8 = if config.verbose {
            aya_log::Level::Warn as u8
        } else {
            0
        };
        let sizes = Sizes::new(config, aya::util::nr_cpus().map_or(1, |cpus| cpus as u64));
        let filling_bytes = sizes.ring / 8;
        // A new loader reads and parses all of the kernel's type information: tens of milliseconds, and of megabytes. The
        // kernel program has no relocations that need it, and a loader that can't open the file does without.
        let mut loader = sys::without_opening(EbpfLoader::new);
        for (name, value) in constants.iter().chain(&offsets) {
            loader.override_global(name, value, true);
        }
        loader
            .override_global("HASH_SEED", &seed, true)
            .override_global("FAST_COOKIE", &fast_cookie, true)
            .override_global("MIN_SIZE", &config.sampling.min_size, true)
            .override_global("MAX_SIZE", &config.sampling.max_size, true)
            .override_global("RING_FILLING_BYTES", &filling_bytes, true)
            .override_global(aya_log::LEVEL, &log_level, false)
            .map_max_entries("EVENTS", sizes.ring)
            .map_max_entries("LIVE", sizes.live)
            .map_max_entries("BLOCK_FILTER", if is_partial { BLOCK_SLOTS } else { 1 })
            .map_max_entries("THREADS", sizes.threads)
            .map_max_entries("PROCESSES", sizes.processes)
            .map_max_entries("ENDED", sizes.processes)
            .map_max_entries("MAP_CALLS", if config.mappings { sizes.threads } else { 1 })
            .map_max_entries("UNMAPPED", if config.mappings { MAX_UNMAPPED } else { 1 })
            .map_max_entries("PROBE_HITS", sizes.hits)
            .map_max_entries("REACHED", if is_one_by_one { sizes.processes } else { 1 })
            .map_max_entries(
                "FAST_PROCESSES",
                if config.fast { sizes.processes } else { 1 },
            )
            .map_max_entries("LAST_HITS", if config.fast { sizes.processes } else { 1 })
            .map_max_entries("STACKS", sizes.stacks)
            .map_max_entries("PYTHON_WALKS", sizes.threads)
            .map_max_entries("V8_WALKS", sizes.threads)
            .map_max_entries("JAVA_STACKS", sizes.threads)
            .map_max_entries("RAW_WALKS", sizes.threads / 32)
            .map_max_entries("PAGES", config.tables.pages())
            .map_max_entries("ROWS", segments(config.tables.max_bytes));
        let mut ebpf = loader.load(OBJECT).context(
            "the kernel refused heaptrace's maps; `heaptrace doctor` says what is missing",
        )?;
        for (name, tracepoint) in LIFECYCLE {
            let program: &mut RawTracePoint = ebpf
                .program_mut(name)
                .ok_or_else(|| missing(name))?
                .try_into()?;
            program.load().map_err(refused)?;
            program
                .attach(tracepoint)
                .with_context(|| format!("the kernel has no tracepoint {tracepoint}"))?;
        }
        let mut program = Self {
            ebpf,
            filling_bytes,
            max_live: sizes.live,
            block_filter: None,
            fast_cookie,
        };
        if is_partial {
            let (array, slots) = program.array("BLOCK_FILTER")?;
            let filter = MappedArray::map(array, slots)
                .context("can't map the kernel program's counting filter of blocks")?;
            program.block_filter = Some(filter);
        }
        program.set_filter(filter)?;
        program.start_sampling(config.sampling.mean)?;
        Ok(program)
    }

    /// Sets the criteria of the process filter.
    fn set_filter(&mut self, filter: &ProcessFilter) -> Result<()> {
        let mut names = Array::<_, Wire<NameFilter>>::try_from(self.map_mut("NAME_FILTER")?)?;
        names.set(0, Wire(*filter.names), 0)?;
        let mut cgroups = HashMap::<_, u64, u8>::try_from(self.map_mut("CGROUP_FILTER")?)?;
        for cgroup in &filter.cgroups {
            cgroups.insert(cgroup, 1, 0)?;
        }
        let mut users = HashMap::<_, u32, u8>::try_from(self.map_mut("USER_FILTER")?)?;
        for user in &filter.users {
            users.insert(user, 1, 0)?;
        }
        Ok(())
    }

    pub(crate) fn map_mut(&mut self, name: &str) -> Result<&mut Map> {
        self.ebpf.map_mut(name).ok_or_else(|| missing(name))
    }

    pub(crate) fn map(&self, name: &str) -> Result<&Map> {
        self.ebpf.map(name).ok_or_else(|| missing(name))
    }

    /// A map, once.
    pub(super) fn take_map(&mut self, name: &str) -> Result<Map> {
        self.ebpf.take_map(name).ok_or_else(|| missing(name))
    }

    pub(crate) fn programs(&self) -> impl Iterator<Item = (&str, &aya::programs::Program)> {
        self.ebpf.programs()
    }

    /// How often sizes of each class were requested.
    pub fn sizes(&self) -> Result<Vec<u64>> {
        let map = self.ebpf.map("SIZES").ok_or_else(|| missing("SIZES"))?;
        let array = PerCpuArray::<_, u64>::try_from(map)?;
        (0..SIZE_CLASSES)
            .map(|class| Ok(array.get(&class, 0)?.iter().sum()))
            .collect()
    }

    /// Does work, and loads these programs meanwhile: the kernel takes up to some tenths of a second to verify one. If the
    /// work fails, programs may be missing.
    pub fn load_during<T>(
        &mut self,
        names: &BTreeSet<&str>,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let wanted = self.ebpf.programs_mut();
        let wanted = wanted.filter(|(name, _)| names.contains(name));
        let waiting = Mutex::new(wanted.map(|(_, program)| program).collect::<Vec<_>>());
        let next = || lock(&waiting).pop();
        let load = || {
            while let Some(program) = next() {
                if let Ok(probe) = TryInto::<&mut UProbe>::try_into(program) {
                    // `probe` tries again, and reports the error.
                    let _ = probe.load();
                }
            }
        };
        let result = std::thread::scope(|scope| {
            for _ in 0..LOADERS {
                // Without the thread, the others or this one load its share.
                let _ = std::thread::Builder::new().spawn_scoped(scope, load);
            }
            let result = work();
            if result.is_err() {
                lock(&waiting).clear();
            }
            load();
            result
        })?;
        self.set_next_programs(names)?;
        Ok(result)
    }

    /// A descriptor of a probe program. It is loaded at the first request, unless it was loaded before: there is one
    /// for each kind of function, and most files have few kinds.
    pub fn probe(&mut self, name: &str) -> Result<OwnedFd> {
        Ok(self.loaded(name)?.as_fd().try_clone_to_owned()?)
    }

    /// A probe program, which is loaded now unless it was before.
    pub(super) fn loaded(&mut self, name: &str) -> Result<&ProgramFd> {
        let program: &mut UProbe = self
            .ebpf
            .program_mut(name)
            .ok_or_else(|| missing(name))?
            .try_into()?;
        match program.load() {
            Ok(()) | Err(ProgramError::AlreadyLoaded) => {}
            Err(error) => return Err(refused(error)),
        }
        Ok(program.fd()?)
    }

    /// The ring, once, and the number of unread bytes from which on it is filling up.
    pub fn take_ring(&mut self) -> Result<(RingBuf<MapData>, usize)> {
        let map = self.take_map("EVENTS")?;
        Ok((RingBuf::try_from(map)?, self.filling_bytes as usize))
    }

    /// The program's log; once, and only if the run is verbose.
    pub fn logger(&mut self) -> Result<aya_log::EbpfLogger<&'static dyn log::Log>> {
        Ok(aya_log::EbpfLogger::init(&mut self.ebpf)?)
    }

    /// By which the kernel program recognizes calls from the fast path's code.
    pub fn fast_cookie(&self) -> u64 {
        self.fast_cookie
    }

    /// Starts or stops recording, for all probes at once.
    pub fn set_gate(&mut self, open: bool) -> Result<()> {
        let map = self.ebpf.map_mut("GATE").ok_or_else(|| missing("GATE"))?;
        Ok(Array::<_, u32>::try_from(map)?.set(0, u32::from(open), 0)?)
    }

    /// The counters, summed over the CPUs.
    pub fn counters(&self) -> Result<[u64; COUNTERS]> {
        let map = self
            .ebpf
            .map("COUNTERS")
            .ok_or_else(|| missing("COUNTERS"))?;
        let array = PerCpuArray::<_, u64>::try_from(map)?;
        let mut sums = [0; COUNTERS];
        for counter in Counter::ALL {
            let slot = *counter as u32;
            sums[slot as usize] = array.get(&slot, 0)?.iter().sum();
        }
        Ok(sums)
    }

    /// Most entries of the live map.
    pub fn max_live(&self) -> u32 {
        self.max_live
    }

    /// The live map.
    pub fn live(&self) -> Result<HashMap<&MapData, Wire<BlockKey>, Wire<Block>>> {
        let map = self.ebpf.map("LIVE").ok_or_else(|| missing("LIVE"))?;
        Ok(HashMap::try_from(map)?)
    }

    /// Takes a block out of the live map.
    pub fn take_block(&self, key: BlockKey) -> Result<Option<Block>> {
        let block = self.take_wire("LIVE", &Wire(key))?;
        if block.is_some() {
            uncount(self.block_filter.as_ref(), key);
        }
        Ok(block)
    }

    /// Takes the end of a process that did not fit into the ring.
    pub fn take_end(&self, serial: u64) -> Result<Option<ProcessEnd>> {
        self.take_wire("ENDED", &serial)
    }

    /// Takes all memory that was unmapped by calls whose event did not fit into the ring.
    pub fn take_unmapped(&self) -> Result<Vec<Unmapped>> {
        let map = self
            .ebpf
            .map("UNMAPPED")
            .ok_or_else(|| missing("UNMAPPED"))?;
        let map = HashMap::<_, u64, Wire<Unmapped>>::try_from(map)?;
        let ids: Vec<u64> = map.keys().filter_map(Result::ok).collect();
        let mut taken = Vec::new();
        for id in ids {
            taken.extend(self.take_wire::<_, Unmapped>("UNMAPPED", &id)?);
        }
        Ok(taken)
    }

    /// Takes an entry out of a map whose values are wire structs.
    fn take_wire<K: aya::Pod, V: Plain>(&self, name: &str, key: &K) -> Result<Option<V>> {
        Ok(self.take::<K, Wire<V>>(name, key)?.map(|value| value.0))
    }

    /// Takes an entry out of a map whose values have type `V`.
    pub(crate) fn take<K: aya::Pod, V: aya::Pod>(&self, name: &str, key: &K) -> Result<Option<V>> {
        match self.ebpf.map(name) {
            Some(Map::HashMap(map)) => Ok(sys::map_take(map.fd().as_fd(), key)?),
            _ => Err(missing(name)),
        }
    }

    /// Removes the entries of blocks whose process has ended.
    pub fn forget_blocks(&mut self, keys: impl IntoIterator<Item = BlockKey>) -> Result<()> {
        let map = self.ebpf.map_mut("LIVE").ok_or_else(|| missing("LIVE"))?;
        let mut live = HashMap::<_, Wire<BlockKey>, Wire<Block>>::try_from(map)?;
        for key in keys {
            // A missing entry was marked and swept.
            if live.remove(&Wire(key)).is_ok() {
                uncount(self.block_filter.as_ref(), key);
            }
        }
        Ok(())
    }

    /// The map of unwind tables, once.
    pub fn take_tables(&mut self) -> Result<TableMap> {
        Ok(TableMap {
            map: HashMap::try_from(self.take_map("TABLES")?)?,
        })
    }

    /// The map of segments of unwind tables, once.
    pub fn take_rows(&mut self) -> Result<ArrayOfMaps<MapData, MapData>> {
        Ok(ArrayOfMaps::try_from(self.take_map("ROWS")?)?)
    }

    /// Removes stacks of processes that have ended.
    pub fn forget_stacks(&mut self, keys: impl IntoIterator<Item = StackKey>) -> Result<()> {
        let map = self
            .ebpf
            .map_mut("STACKS")
            .ok_or_else(|| missing("STACKS"))?;
        let mut stacks = HashMap::<_, Wire<StackKey>, u64>::try_from(map)?;
        for key in keys {
            // Two threads may have sent the same stack, and a full map has no entry for it.
            let _ = stacks.remove(&Wire(key));
        }
        Ok(())
    }

    /// A descriptor of an array map, and the number of its values.
    pub fn array(&self, name: &str) -> Result<(BorrowedFd<'_>, usize)> {
        match self.ebpf.map(name) {
            Some(Map::Array(map)) => Ok((map.fd().as_fd(), map.info()?.max_entries() as usize)),
            _ => Err(missing(name)),
        }
    }

    /// The process map.
    pub fn processes(&self) -> Result<HashMap<&MapData, u32, Wire<ProcessState>>> {
        let map = self
            .ebpf
            .map("PROCESSES")
            .ok_or_else(|| missing("PROCESSES"))?;
        Ok(HashMap::try_from(map)?)
    }

    /// Ends of processes that did not fit into the ring.
    pub fn ended(&self) -> Result<HashMap<&MapData, u64, Wire<ProcessEnd>>> {
        let map = self.ebpf.map("ENDED").ok_or_else(|| missing("ENDED"))?;
        Ok(HashMap::try_from(map)?)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Uncounts a block that has left the live map.
fn uncount(block_filter: Option<&MappedArray>, key: BlockKey) {
    if let Some(filter) = block_filter {
        filter.add(block_slot(key.address) as usize, 1_u64.wrapping_neg());
    }
}

/// Bytes of kernel memory that the maps of this process use now, as the kernel counts them.
pub fn map_bytes() -> u64 {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return 0;
    };
    // Reading what the kernel says of a descriptor takes several calls, and most descriptors are of files and probes.
    let is_map = |path: &Path| {
        std::fs::read_link(path).is_ok_and(|it| it == Path::new("anon_inode:bpf-map"))
    };
    entries
        .filter_map(Result::ok)
        .filter(|entry| is_map(&entry.path()))
        .filter_map(|entry| {
            let info = Path::new("/proc/self/fdinfo").join(entry.file_name());
            let info = std::fs::read_to_string(info).ok()?;
            let line = info
                .lines()
                .find_map(|line| line.strip_prefix("memlock:"))?;
            line.trim().parse::<u64>().ok()
        })
        .sum()
}

/// The verifier's log is long, and only useful to developers, so it goes to the debug log.
fn refused(error: ProgramError) -> anyhow::Error {
    if let ProgramError::LoadError { verifier_log, .. } = &error {
        tracing::debug!("{verifier_log}");
    }
    anyhow!(error)
        .context("the kernel refused heaptrace's program; `heaptrace doctor` says what is missing")
}

/// Maximum number of segments for this many bytes of rows.
fn segments(bytes: u64) -> u32 {
    let segments = bytes.div_ceil(u64::from(SEGMENT_SLOTS) * 8);
    u32::try_from(segments).unwrap_or(u32::MAX).max(1)
}

fn missing(name: &str) -> anyhow::Error {
    anyhow!(
        "the kernel object has no {name}: it belongs to another build of heaptrace. Build heaptrace again"
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use heaptrace_common::arguments::ENTRY_PROGRAMS;

    use super::*;

    /// Check that the kernel object's entry programs are exactly those of the table of argument positions,
    /// except the baseline, which reads nothing.
    #[test]
    fn every_entry_program_is_in_the_table() {
        let object = aya_obj::Object::parse(OBJECT).unwrap();
        let names = object.programs.keys().map(String::as_str);
        let entries: BTreeSet<&str> = names
            .filter(|name| name.ends_with("_entry") && *name != "baseline_entry")
            .collect();
        let table: BTreeSet<&str> = ENTRY_PROGRAMS.iter().map(|it| it.name).collect();
        assert_eq!(entries, table);
    }
}
