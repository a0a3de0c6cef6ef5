//! The kernel program: loaded, with this machine's constants and this run's sizes.
//!
//! Part of `kernel`. Knows the object's names of programs, maps and globals, but not where the programs
//! go.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use anyhow::{Context as _, Result, anyhow};
use aya::maps::{Array, ArrayOfMaps, HashMap, Map, MapData, PerCpuArray, RingBuf};
use aya::programs::{ProgramError, RawTracePoint, UProbe};
use aya::{Ebpf, EbpfLoader};
use aya_obj::generated::{BPF_F_MMAPABLE, bpf_map_type::BPF_MAP_TYPE_ARRAY};
use heaptrace_common::counters::{COUNTERS, Counter};
use heaptrace_common::limits::SEGMENT_SLOTS;
use heaptrace_common::places::{self, BLOCK_PLACES};
use heaptrace_common::wire::{
    Block, BlockKey, ChosenNames, FileKey, MAX_UNMAPPED, ProcessEnd, ProcessState, SIZE_CLASSES,
    StackKey, TableRef, Unmapped,
};

use super::btf::{Btf, BtfError};
use super::process_filter::ProcessFilter;
use super::sizes::Sizes;
use crate::config::{RunConfig, Target};
use crate::kernel::mapped_array::MappedArray;
use crate::sys;

/// The kernel object that this binary was built with.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/heaptrace.bpf.o"));

/// Tracepoints that tell of births and deaths, with the programs for them.
const LIFECYCLE: [(&str, &str); 3] = [
    ("process_fork", "sched_process_fork"),
    ("process_exec", "sched_process_exec"),
    ("process_exit", "sched_process_exit"),
];

macro_rules! wire_pod {
    ($($wrapper:ident($inner:ty)),+) => {$(
        /// A wire struct that can cross to and from a map.
        #[derive(Clone, Copy)]
        #[repr(transparent)]
        pub struct $wrapper(pub $inner);
        // SAFETY: integers only, without padding bytes (asserted where the struct is defined).
        unsafe impl aya::Pod for $wrapper {}
    )+};
}
wire_pod!(
    PodFileKey(FileKey),
    PodTableRef(TableRef),
    PodBlockKey(BlockKey),
    PodBlock(Block),
    PodChosenNames(ChosenNames),
    PodProcessEnd(ProcessEnd),
    PodProcessState(ProcessState),
    PodStackKey(StackKey),
    PodUnmapped(Unmapped)
);

/// The map of unwind tables.
pub struct TableMap {
    map: HashMap<MapData, PodFileKey, PodTableRef>,
}

impl TableMap {
    /// Says where the table of a file stands.
    pub fn insert(&mut self, file: FileKey, table: TableRef) -> Result<()> {
        Ok(self
            .map
            .insert(PodFileKey(file), PodTableRef(table.of(file)), 0)?)
    }

    /// Forgets a file.
    pub fn remove(&mut self, file: FileKey) {
        // One that is not there is forgotten already.
        let _ = self.map.remove(&PodFileKey(file));
    }
}

/// The loaded program.
pub struct Program {
    ebpf: Ebpf,
    /// What of the ring is a crowd.
    crowded_bytes: u32,
    /// How many blocks of the live map have their address in each place, where not every call is recorded.
    blocks_at: Option<MappedArray>,
}

impl Program {
    /// Loads the object into the kernel and attaches what follows processes; probes come later.
    pub fn load(config: &RunConfig, chosen: &ProcessFilter, guardian: u32) -> Result<Self> {
        let kernel = std::fs::read("/sys/kernel/btf/vmlinux")
            .context("/sys/kernel/btf/vmlinux: this kernel gives no type information (BTF); `heaptrace doctor` says what is missing")?;
        let btf = Btf::parse(&kernel)?;
        let offset = |structure, member| btf.member_offset(structure, member);
        let changed = change_time(&btf)?;
        // Whoever is traced by himself is not the agent.
        let agent = match config.target {
            Target::All => std::process::id(),
            _ => 0,
        };
        let is_partial = config.sampling.is_partial();
        let constants = [
            ("AGENT_TGID", agent),
            ("GUARDIAN_TGID", guardian),
            ("CHOICES", chosen.asks),
            ("MAX_STACK_DEPTH", config.max_stack_depth),
            ("COUNT_HITS", u32::from(config.max_overhead.is_some())),
            ("PARTIAL", u32::from(is_partial)),
            ("TASK_TGID", offset("task_struct", "tgid")?),
            ("TASK_MM", offset("task_struct", "mm")?),
            ("TASK_SIGNAL", offset("task_struct", "signal")?),
            ("TASK_GROUP_LEADER", offset("task_struct", "group_leader")?),
            ("TASK_REAL_PARENT", offset("task_struct", "real_parent")?),
            ("TASK_COMM", offset("task_struct", "comm")?),
            (
                "TASK_START_BOOTTIME",
                offset("task_struct", "start_boottime")?,
            ),
            ("SIGNAL_LIVE", offset("signal_struct", "live")?),
            (
                "MM_LOCK_SEQ",
                offset("mm_struct", "mm_lock_seq").unwrap_or(0),
            ),
            ("VMA_START", offset("vm_area_struct", "vm_start")?),
            ("VMA_END", offset("vm_area_struct", "vm_end")?),
            ("VMA_PGOFF", offset("vm_area_struct", "vm_pgoff")?),
            ("VMA_FILE", offset("vm_area_struct", "vm_file")?),
            ("VMA_MM", offset("vm_area_struct", "vm_mm")?),
            ("MM_VDSO", offset("mm_struct", "context.vdso")?),
            ("FILE_INODE", offset("file", "f_inode")?),
            ("INODE_NUMBER", offset("inode", "i_ino")?),
            ("INODE_SUPER", offset("inode", "i_sb")?),
            ("INODE_CHANGE_SECONDS", changed.0),
            ("INODE_CHANGE_NANOSECONDS", changed.1),
            ("SUPER_DEVICE", offset("super_block", "s_dev")?),
        ];
        let seed = sys::random().context("getrandom")?;
        let log_level: u8 = if config.verbose {
            aya_log::Level::Warn as u8
        } else {
            0
        };
        let sizes = Sizes::new(config, aya::util::nr_cpus().map_or(1, |cpus| cpus as u64));
        let crowded_bytes = sizes.ring / 8;
        let mut loader = EbpfLoader::new();
        for (name, value) in &constants {
            loader.override_global(name, value, true);
        }
        loader
            .override_global("HASH_SEED", &seed, true)
            .override_global("MIN_SIZE", &config.sampling.min_size, true)
            .override_global("MAX_SIZE", &config.sampling.max_size, true)
            .override_global("RING_CROWDED_BYTES", &crowded_bytes, true)
            .override_global(aya_log::LEVEL, &log_level, false)
            .map_max_entries("EVENTS", sizes.ring)
            .map_max_entries("LIVE", sizes.live)
            .map_max_entries("BLOCKS_AT", if is_partial { BLOCK_PLACES } else { 1 })
            .map_max_entries("THREADS", sizes.threads)
            .map_max_entries("PROCESSES", sizes.processes)
            .map_max_entries("ENDED", sizes.processes)
            .map_max_entries("MAP_CALLS", if config.mappings { sizes.threads } else { 1 })
            .map_max_entries("UNMAPPED", if config.mappings { MAX_UNMAPPED } else { 1 })
            .map_max_entries("HITS", sizes.processes)
            .map_max_entries("STACKS", sizes.stacks)
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
            crowded_bytes,
            blocks_at: None,
        };
        if is_partial {
            let (places, count) = program.array("BLOCKS_AT")?;
            program.blocks_at =
                Some(MappedArray::map(places, count).context("can't map the places of blocks")?);
        }
        program.choose(chosen)?;
        program.begin_sampling(config.sampling.mean)?;
        Ok(program)
    }

    /// Says which processes are to be traced.
    fn choose(&mut self, chosen: &ProcessFilter) -> Result<()> {
        Array::<_, PodChosenNames>::try_from(self.map_mut("CHOSEN_NAMES")?)?.set(
            0,
            PodChosenNames(*chosen.names),
            0,
        )?;
        let mut cgroups = HashMap::<_, u64, u8>::try_from(self.map_mut("CHOSEN_CGROUPS")?)?;
        for cgroup in &chosen.cgroups {
            cgroups.insert(cgroup, 1, 0)?;
        }
        let mut users = HashMap::<_, u32, u8>::try_from(self.map_mut("CHOSEN_USERS")?)?;
        for user in &chosen.users {
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

    pub(crate) fn programs(&self) -> impl Iterator<Item = (&str, &aya::programs::Program)> {
        self.ebpf.programs()
    }

    /// How often sizes of each class were asked for.
    pub fn sizes(&self) -> Result<Vec<u64>> {
        let map = self.ebpf.map("SIZES").ok_or_else(|| missing("SIZES"))?;
        let array = PerCpuArray::<_, u64>::try_from(map)?;
        (0..SIZE_CLASSES)
            .map(|class| Ok(array.get(&class, 0)?.iter().sum()))
            .collect()
    }

    /// A descriptor of a program for probes, which is loaded when it is first asked for: there is one for each
    /// kind of function, and most files have few kinds.
    pub fn probe(&mut self, name: &str) -> Result<OwnedFd> {
        let program: &mut UProbe = self
            .ebpf
            .program_mut(name)
            .ok_or_else(|| missing(name))?
            .try_into()?;
        match program.load() {
            Ok(()) | Err(ProgramError::AlreadyLoaded) => {}
            Err(error) => return Err(refused(error)),
        }
        Ok(program.fd()?.as_fd().try_clone_to_owned()?)
    }

    /// The ring, once, and how many bytes of it are a crowd.
    pub fn take_ring(&mut self) -> Result<(RingBuf<MapData>, usize)> {
        let map = self
            .ebpf
            .take_map("EVENTS")
            .ok_or_else(|| missing("EVENTS"))?;
        Ok((RingBuf::try_from(map)?, self.crowded_bytes as usize))
    }

    /// What the program writes to the log; once, and only where the run is verbose.
    pub fn logger(&mut self) -> Result<aya_log::EbpfLogger<&'static dyn log::Log>> {
        Ok(aya_log::EbpfLogger::init(&mut self.ebpf)?)
    }

    /// Begins or ends recording, for all probes at once.
    pub fn set_gate(&mut self, open: bool) -> Result<()> {
        let map = self.ebpf.map_mut("GATE").ok_or_else(|| missing("GATE"))?;
        Ok(Array::<_, u32>::try_from(map)?.set(0, u32::from(open), 0)?)
    }

    /// The counters, added up over the CPUs.
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

    /// The live map.
    pub fn live(&self) -> Result<HashMap<&MapData, PodBlockKey, PodBlock>> {
        let map = self.ebpf.map("LIVE").ok_or_else(|| missing("LIVE"))?;
        Ok(HashMap::try_from(map)?)
    }

    /// Takes a block out of the live map.
    pub fn take_block(&self, key: &PodBlockKey) -> Result<Option<Block>> {
        let taken = self.take::<_, PodBlock>("LIVE", key)?;
        if taken.is_some() {
            uncount(self.blocks_at.as_ref(), key.0);
        }
        Ok(taken.map(|block| block.0))
    }

    /// Takes the end of a process that found no place in the ring.
    pub fn take_end(&self, serial: u64) -> Result<Option<ProcessEnd>> {
        Ok(self
            .take::<_, PodProcessEnd>("ENDED", &serial)?
            .map(|end| end.0))
    }

    /// Takes all that was unmapped by calls whose event found no place in the ring.
    pub fn take_unmapped(&self) -> Result<Vec<Unmapped>> {
        let map = self
            .ebpf
            .map("UNMAPPED")
            .ok_or_else(|| missing("UNMAPPED"))?;
        let map = HashMap::<_, u64, PodUnmapped>::try_from(map)?;
        let ids: Vec<u64> = map.keys().filter_map(Result::ok).collect();
        let mut taken = Vec::new();
        for id in ids {
            taken.extend(self.take::<_, PodUnmapped>("UNMAPPED", &id)?.map(|it| it.0));
        }
        Ok(taken)
    }

    /// Takes an entry out of a map whose values are of type `V`.
    pub(crate) fn take<K: aya::Pod, V: aya::Pod>(&self, name: &str, key: &K) -> Result<Option<V>> {
        match self.ebpf.map(name) {
            Some(Map::HashMap(map)) => Ok(sys::map_take(map.fd().as_fd(), key)?),
            _ => Err(missing(name)),
        }
    }

    /// Removes the entries of blocks whose process is gone.
    pub fn forget_blocks(&mut self, keys: impl IntoIterator<Item = BlockKey>) -> Result<()> {
        let map = self.ebpf.map_mut("LIVE").ok_or_else(|| missing("LIVE"))?;
        let mut live = HashMap::<_, PodBlockKey, PodBlock>::try_from(map)?;
        for key in keys {
            // One that is not there was marked and swept.
            if live.remove(&PodBlockKey(key)).is_ok() {
                uncount(self.blocks_at.as_ref(), key);
            }
        }
        Ok(())
    }

    /// The map of unwind tables, once.
    pub fn take_tables(&mut self) -> Result<TableMap> {
        let map = self
            .ebpf
            .take_map("TABLES")
            .ok_or_else(|| missing("TABLES"))?;
        Ok(TableMap {
            map: HashMap::try_from(map)?,
        })
    }

    /// The map of segments of unwind tables, once.
    pub fn take_rows(&mut self) -> Result<ArrayOfMaps<MapData, MapData>> {
        let map = self.ebpf.take_map("ROWS").ok_or_else(|| missing("ROWS"))?;
        Ok(ArrayOfMaps::try_from(map)?)
    }

    /// A segment of unwind tables, of so many slots of eight bytes.
    pub fn new_segment(slots: u32) -> Result<MapData> {
        let array =
            aya_obj::Map::new_from_params(BPF_MAP_TYPE_ARRAY as u32, 4, 8, slots, BPF_F_MMAPABLE);
        Ok(MapData::create(array, "ROWS_SEGMENT", None)?)
    }

    /// Forgets stacks of processes that are gone.
    pub fn forget_stacks(&mut self, keys: impl IntoIterator<Item = StackKey>) -> Result<()> {
        let map = self
            .ebpf
            .map_mut("STACKS")
            .ok_or_else(|| missing("STACKS"))?;
        let mut stacks = HashMap::<_, PodStackKey, u64>::try_from(map)?;
        for key in keys {
            // Two threads may have sent the same one, and a full map has kept none.
            let _ = stacks.remove(&PodStackKey(key));
        }
        Ok(())
    }

    /// A descriptor of an array map, and how many values it has.
    pub fn array(&self, name: &str) -> Result<(BorrowedFd<'_>, usize)> {
        match self.ebpf.map(name) {
            Some(Map::Array(map)) => Ok((map.fd().as_fd(), map.info()?.max_entries() as usize)),
            _ => Err(missing(name)),
        }
    }

    /// The process map.
    pub fn processes(&self) -> Result<HashMap<&MapData, u32, PodProcessState>> {
        let map = self
            .ebpf
            .map("PROCESSES")
            .ok_or_else(|| missing("PROCESSES"))?;
        Ok(HashMap::try_from(map)?)
    }

    /// Ends of processes that found no place in the ring.
    pub fn ended(&self) -> Result<HashMap<&MapData, u64, PodProcessEnd>> {
        let map = self.ebpf.map("ENDED").ok_or_else(|| missing("ENDED"))?;
        Ok(HashMap::try_from(map)?)
    }
}

/// Takes a block that has left the live map out of the count of its place.
fn uncount(blocks_at: Option<&MappedArray>, key: BlockKey) {
    if let Some(blocks_at) = blocks_at {
        blocks_at.take_one(places::of_block(key.address) as usize);
    }
}

/// Bytes of kernel memory that the maps of this process take now, by the kernel's own reckoning.
pub fn map_bytes() -> u64 {
    let Ok(entries) = std::fs::read_dir("/proc/self/fdinfo") else {
        return 0;
    };
    entries
        .filter_map(|entry| std::fs::read_to_string(entry.ok()?.path()).ok())
        .filter(|info| info.contains("map_type:"))
        .filter_map(|info| {
            let line = info
                .lines()
                .find_map(|line| line.strip_prefix("memlock:"))?;
            line.trim().parse::<u64>().ok()
        })
        .sum()
}

/// The verifier's words are long, and for us.
fn refused(error: ProgramError) -> anyhow::Error {
    if let ProgramError::LoadError { verifier_log, .. } = &error {
        tracing::debug!("{verifier_log}");
    }
    anyhow!(error)
        .context("the kernel refused heaptrace's program; `heaptrace doctor` says what is missing")
}

/// Where an inode has the seconds and the nanoseconds of its last change: two members since Linux 6.11, one
/// under two names before.
fn change_time(btf: &Btf<'_>) -> Result<(u32, u32), BtfError> {
    let offset = |member| btf.member_offset("inode", member);
    if let (Ok(seconds), Ok(nanoseconds)) = (offset("i_ctime_sec"), offset("i_ctime_nsec")) {
        return Ok((seconds, nanoseconds));
    }
    let time = offset("__i_ctime").or_else(|_| offset("i_ctime"))?;
    Ok((time, time + 8))
}

/// Most segments for so many bytes of rows.
fn segments(bytes: u64) -> u32 {
    let segments = bytes.div_ceil(u64::from(SEGMENT_SLOTS) * 8);
    u32::try_from(segments).unwrap_or(u32::MAX).max(1)
}

fn missing(name: &str) -> anyhow::Error {
    anyhow!("the kernel object has no {name}: it does not belong to this build of heaptrace")
}
