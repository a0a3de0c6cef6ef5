//! A process that tells the classes of blocks in a core file, for a command that has given up its rights.
//!
//! Part of the command line. The first words of blocks are in the core file, and the files that these lead to must be opened: only files with the build
//! id of the recording are. Must not know how a class is found: the types stage does.

use std::fs::File;
use std::io::{self, Read as _, Write as _};

use serde::{Deserialize, Serialize};

use super::side_process::SideProcess;
use crate::core_file::CoreFile;
use crate::join::{BornBlock, Inspected, Module, ModuleId};
use crate::profile::{BlockList, Profile};
use crate::reader::{Budget, decode, encode};
use crate::symbolize::{ModuleFiles as _, OnDisk};
use crate::types::Inspector;

/// Most blocks whose class is asked for.
const MOST_BLOCKS: usize = 1024;

/// Most bytes of an answer.
const MOST_BYTES: u64 = 64 << 20;

/// A word of a block that leads into a file.
#[derive(Debug, Serialize, Deserialize)]
struct InFile {
    path: String,
    root: String,
    build_id: Vec<u8>,
    offset: u64,
}

/// The process, which waits for its question.
pub(super) struct Classes(SideProcess);

impl Classes {
    /// Starts the process. Must be called while this process has a single thread.
    pub(super) fn start() -> io::Result<Self> {
        SideProcess::start(c"heaptrace-class", serve).map(Self)
    }

    /// Finds the classes of the blocks at these addresses, and adds them to the process of a core file.
    pub(super) fn add<'a, R: object::ReadRef<'a>>(
        self,
        addresses: &[u64],
        core: &CoreFile<R>,
        profile: &Profile,
        blocks: &mut BlockList,
    ) {
        // The last one: an exec begins another image of the same process.
        let mut images = blocks.processes.iter_mut().rev();
        let Some(image) = images.find(|it| it.owner.pid == core.pid()) else {
            return;
        };
        let mut held: Vec<BornBlock> = Vec::new();
        for address in addresses {
            let (before, behind) = image.neighbours(*address);
            let near = [image.holding(*address), before, behind];
            held.extend(near.into_iter().flatten());
        }
        held.sort_unstable_by_key(|it| it.id);
        held.dedup_by_key(|it| it.id);
        held.truncate(MOST_BLOCKS);
        let (mut asked, mut of_asked) = (Vec::new(), Vec::new());
        let mut inspected = Inspected::default();
        for block in held.iter().filter(|it| it.size >= 8) {
            let Some(word) = core.memory(block.address, 8).first_chunk() else {
                inspected.unread += 1;
                continue;
            };
            inspected.read += 1;
            if let Some(place) = in_file(u64::from_le_bytes(*word), core, profile) {
                asked.push(place);
                of_asked.push(block.id);
            }
        }
        for (id, name) in of_asked.into_iter().zip(self.names(&asked)) {
            if name.is_empty() {
                continue;
            }
            let known = inspected.classes.iter().position(|it| *it == name);
            let class = known.unwrap_or_else(|| {
                inspected.classes.push(name);
                inspected.classes.len() - 1
            });
            inspected.blocks.push((id, class as u32));
        }
        image.inspected = Some(inspected);
    }

    fn names(self, asked: &[InFile]) -> Vec<String> {
        let SideProcess {
            mut question,
            answer,
        } = self.0;
        let mut bytes = Vec::new();
        // Without an answer, no class is known.
        let sent = question.write_all(&encode(&asked));
        drop(question);
        let read = answer.take(MOST_BYTES).read_to_end(&mut bytes);
        let names: Option<Vec<String>> = sent.and(read).ok().and_then(|_| decode(&bytes));
        names
            .filter(|it| it.len() == asked.len())
            .unwrap_or_default()
    }
}

/// Where a word leads to, in a file of the recording.
fn in_file<'a, R: object::ReadRef<'a>>(
    word: u64,
    core: &CoreFile<R>,
    profile: &Profile,
) -> Option<InFile> {
    let (path, offset) = core.in_file(word)?;
    let mut modules = profile.modules.iter();
    let module = modules.find(|it| it.path == path && !it.build_id.is_empty())?;
    Some(InFile {
        path: module.path.clone(),
        root: module.root.clone(),
        build_id: module.build_id.clone(),
        offset,
    })
}

/// Waits for a question, and answers it.
fn serve(asked: File, mut answered: File) {
    let mut bytes = Vec::new();
    let read = asked.take(MOST_BYTES).read_to_end(&mut bytes);
    let question: Option<Vec<InFile>> = read.ok().and_then(|_| decode(&bytes));
    let mut inspector = Inspector::new(&Budget::default());
    let names = question.unwrap_or_default().into_iter().map(|it| {
        let module = Module {
            path: it.path,
            root: it.root,
            build_id: it.build_id,
            ..Module::default()
        };
        let has_id = !module.build_id.is_empty();
        let file = OnDisk::default().file(inspector.reader(), ModuleId(0), &module);
        let found = file.filter(|_| has_id).and_then(|file| {
            inspector
                .classes_in(&module.path, &file, &[it.offset])
                .pop()
        });
        found.unwrap_or_default()
    });
    let names: Vec<String> = names.collect();
    // If the command has ended, the answer is not read.
    let _ = answered.write_all(&encode(&names));
}
