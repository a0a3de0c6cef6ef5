//! What the parts of a run work on together: the streams, the kernel program, the probes and the joined state.
//!
//! Part of the session. Must not know when a run updates its observer, or why it ends.

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::drain::Drain;
use super::inspect::Inspections;
use super::kernel_state::Swept;
use super::memory::MemoryReading;
use super::reachability::Searches;
use crate::config::RunConfig;
use crate::join::{Joiner, ModuleId, OpenFiles, Update};
use crate::kernel::program::{self, Program};
use crate::open::FileId;
use crate::probes::allocators::ProbedFunction;
use crate::probes::attach::Probes;
use crate::proc::build_id::{self, Build};
use crate::reader::Reader;

/// Fewest probes that the kernel removes within a second.
const REMOVED_PER_SECOND: usize = 10;

/// The state of a run. The fields are dropped in this order: the probes go before the program.
pub(super) struct Run {
    pub(super) probes: Probes,
    pub(super) drain: Drain,
    pub(super) joiner: Joiner,
    pub(super) program: Program,
    /// The probed functions of each file, in a run with a fast path.
    functions: Option<HashMap<FileId, Vec<ProbedFunction>>>,
    swept: Swept,
    memory: MemoryReading,
    inspections: Inspections,
    /// How blocks are looked for that nothing points to; `None` if they are not.
    searches: Option<Searches>,
}

/// The thread that removes the probes at the end.
pub(super) struct Closing(JoinHandle<usize>);

/// The state of a run after its end, without probes.
pub(super) struct EndedRun {
    drain: Drain,
    joiner: Joiner,
    program: Program,
    swept: Swept,
    memory: MemoryReading,
    inspections: Inspections,
}

impl Run {
    pub(super) fn new(
        drain: Drain,
        program: Program,
        probes: Probes,
        joiner: Joiner,
        config: &RunConfig,
    ) -> Self {
        Self {
            functions: config.fast.then(HashMap::new),
            probes,
            drain,
            joiner,
            program,
            swept: Swept::default(),
            memory: MemoryReading::new(config),
            inspections: Inspections::new(config),
            searches: Searches::wanted(config),
        }
    }

    /// Remembers the functions of a file for the fast path.
    pub(super) fn keep_functions(&mut self, file: FileId, functions: &[ProbedFunction]) {
        if let Some(all) = &mut self.functions {
            all.insert(file, functions.to_vec());
        }
    }

    /// Whether processes may be moved to the fast path.
    pub(super) fn is_fast(&self) -> bool {
        self.functions.is_some()
    }

    /// The functions of a probed file; none in a run without a fast path.
    pub(super) fn functions_of(&self, file: FileId) -> &[ProbedFunction] {
        let functions = self.functions.as_ref().and_then(|all| all.get(&file));
        functions.map_or(&[], Vec::as_slice)
    }

    /// Joins the available events; returns when the ring was found empty, or after a few batches.
    pub(super) fn pass(&mut self) {
        self.drain.pass(&mut self.joiner);
    }

    /// Joins all events that were read.
    pub(super) fn flush(&mut self) {
        self.drain.flush(&mut self.joiner);
    }

    /// Closes the ended processes if too many wait for the next update.
    pub(super) fn limit_ending(&mut self) -> Result<()> {
        let Self {
            drain,
            joiner,
            program,
            swept,
            ..
        } = self;
        swept.limit_ending(program, drain, joiner)
    }

    /// Does work on the program and the probes that may take long, and joins events meanwhile.
    pub(super) fn during<T: Send>(
        &mut self,
        work: impl FnOnce(&mut Program, &mut Probes) -> T + Send,
    ) -> Result<T> {
        let Self {
            probes,
            drain,
            joiner,
            program,
            ..
        } = self;
        drain.during(joiner, || work(program, probes))
    }

    /// Everything that changed since the last call, with the kernel's counters, and all live blocks, if these are wanted. Also removes
    /// entries of ended processes from the kernel's maps.
    pub(super) fn update(
        &mut self,
        reader: &mut Reader,
        begin: Instant,
        with_blocks: bool,
    ) -> Result<Update> {
        let Self {
            drain,
            joiner,
            program,
            swept,
            memory,
            inspections,
            ..
        } = self;
        inspections.inspect_if_due(drain, joiner, begin)?;
        inspections.hand_over(joiner);
        memory.read_if_due(drain, joiner, begin, with_blocks)?;
        memory.hand_over(joiner);
        drain.pass(joiner);
        swept.read_kernel(program, drain, joiner)?;
        swept.measure_maps_if_due(joiner);
        program.forget_blocks(joiner.take_orphans())?;
        program.forget_stacks(joiner.take_orphan_stacks())?;
        identify(drain, joiner, reader)?;
        let elapsed_ns = begin.elapsed().as_nanos() as u64;
        Ok(match with_blocks {
            true => joiner.take_update_with_blocks(elapsed_ns),
            false => joiner.take_update(elapsed_ns),
        })
    }

    /// Looks for blocks that nothing points to, if that is wanted. The gate must be open: blocks are those of the moment at which
    /// their process is stopped.
    pub(super) fn search_memory(&mut self, begin: Instant) -> Result<()> {
        let Self {
            drain,
            joiner,
            program,
            swept,
            searches,
            ..
        } = self;
        if let Some(searches) = searches {
            // Whether all blocks are known follows from what was lost, and blocks whose frees were lost don't live.
            swept.read_kernel(program, drain, joiner)?;
            searches.search(drain, joiner, begin)?;
        }
        Ok(())
    }

    /// Reads what of processes' memory is resident, and what live blocks are, if that is wanted. The gate must be closed: so their
    /// blocks are those of this moment.
    pub(super) fn read_memory(&mut self, begin: Instant) {
        self.inspections.inspect(&self.joiner, begin);
        self.memory.read(&self.joiner, begin);
    }

    /// Ends recording, and removes the probes on another thread: some of them take the kernel a while. The gate
    /// must be closed.
    pub(super) fn close_probes(self) -> (EndedRun, Closing) {
        let probes = self.probes;
        let closing = std::thread::spawn(move || probes.close());
        let ended = EndedRun {
            drain: self.drain,
            joiner: self.joiner,
            program: self.program,
            swept: self.swept,
            memory: self.memory,
            inspections: self.inspections,
        };
        (ended, Closing(closing))
    }
}

impl EndedRun {
    /// Joins everything that is left, and returns the last update.
    pub(super) fn last_update(&mut self, reader: &mut Reader, elapsed_ns: u64) -> Result<Update> {
        // A program that had passed the gate before it closed may still be writing.
        const GRACE: Duration = Duration::from_millis(5);
        let Self {
            drain,
            joiner,
            program,
            swept,
            memory,
            inspections,
            ..
        } = self;
        drain.complete(joiner);
        std::thread::sleep(GRACE);
        drain.complete(joiner);
        drain.read_names(joiner);
        // The maps go with the program, so nothing has to be removed from them.
        swept.read_kernel(program, drain, joiner)?;
        joiner.set_kernel_map_bytes(program::map_bytes());
        memory.hand_over(joiner);
        inspections.hand_over(joiner);
        joiner.send_all();
        identify(drain, joiner, reader)?;
        let update = joiner.take_update(elapsed_ns);
        drain.restore_priority();
        Ok(update)
    }

    /// The files in which names can be looked up.
    pub(super) fn files(&self) -> &OpenFiles {
        self.joiner.files()
    }

    pub(super) fn into_files(self) -> OpenFiles {
        self.joiner.into_files()
    }
}

impl Closing {
    /// Waits for the thread; returns a note for the user if some probes are left to the kernel.
    pub(super) fn wait(self) -> Option<String> {
        match self.0.join() {
            Ok(0) => None,
            Ok(left) => Some(format!(
                "the kernel takes up to {} s more to remove the last {left} probes; nothing more is recorded",
                left.div_ceil(REMOVED_PER_SECOND)
            )),
            Err(_) => Some(
                "removing the probes failed; the kernel removes them when heaptrace exits"
                    .to_owned(),
            ),
        }
    }
}

/// Gives new modules their build ids, before an update.
fn identify(drain: &mut Drain, joiner: &mut Joiner, reader: &mut Reader) -> Result<()> {
    let mut identify = |new: Vec<(ModuleId, String, Arc<File>)>| -> Vec<(ModuleId, Build)> {
        new.into_iter()
            .map(|(id, path, file)| (id, build_id::build_of(reader, &path, &file)))
            .collect()
    };
    let new = joiner.take_unidentified();
    if !new.is_empty() {
        // There may be many files, and a reader may hang: events are joined meanwhile.
        for (id, build) in drain.during(joiner, || identify(new))? {
            joiner.identify(id, build);
        }
    }
    for (id, build) in identify(joiner.take_unidentified()) {
        joiner.identify(id, build);
    }
    Ok(())
}
