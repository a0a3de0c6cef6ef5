//! JavaScript behind code without an unwind table: finds processes with V8, has the kernel program send what their frames need, and
//! recognizes these frames when a raw stack arrives.
//!
//! Part of the session. Must not know the names of functions, nor how a stack is walked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use heaptrace_common::unwind::Memory as _;
use heaptrace_common::wire::{CodeRange, Jvm, V8Frame, jvm, word_address, word_slot};

use crate::events::v8::V8Frames;
use crate::open::Identity;
use crate::proc::address_space::AddressSpace;
use crate::proc::maps::{self, Mapping};
use crate::reader::Reader;
use crate::unwind::RawFrame;
use crate::v8::{self, FrameWords, Layout, Memory};

/// The names of programs with V8 whose versions are known, and how the name of the library begins.
const PROGRAMS: [&str; 2] = ["node", "nodejs"];
const LIBRARY: &str = "libnode.so";

/// V8 takes memory for its objects anywhere below the addresses at which the kernel maps libraries. Small numbers of V8, such as positions
/// in bytecode, look like addresses of that range, too.
const OBJECTS: CodeRange = CodeRange {
    start: 0x1_0000,
    end: 0x7000_0000_0000,
};

/// Most processes with V8 at a time. Each one has an open file.
const MAX_PROCESSES: usize = 256;

/// Most files whose versions are kept.
const MAX_FILES: usize = 64;

/// The longest time that a batch of raw stacks may take.
const MAX_TIME: Duration = Duration::from_millis(100);

/// A process with V8.
struct OfProcess {
    version: u32,
    layout: Layout,
    /// It stays that of the program that the process ran when it was opened.
    memory: AddressSpace,
    /// An address that is mapped as long as the program runs.
    mapped: u64,
}

impl OfProcess {
    fn is_there(&self) -> bool {
        self.memory.read(self.mapped, &mut [0]) == 1
    }
}

impl Memory for OfProcess {
    fn read(&self, address: u64, bytes: &mut [u8]) -> Option<()> {
        (self.memory.read(address, bytes) == bytes.len()).then_some(())
    }
}

/// The processes with V8, by process id.
type Processes = Arc<Mutex<HashMap<u32, Arc<OfProcess>>>>;

fn lock(processes: &Processes) -> MutexGuard<'_, HashMap<u32, Arc<OfProcess>>> {
    processes.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Recognizes frames of JavaScript.
#[derive(Default)]
pub(super) struct V8 {
    processes: Processes,
    /// How long that has taken in this batch.
    spent: Duration,
    /// What was recognized in this batch: the outer frames of stacks are often the same.
    recognized: HashMap<(u32, FrameWords), Option<V8Frame>>,
}

/// The frames of JavaScript that a raw stack may have.
#[derive(Debug, Default)]
pub(super) struct PossibleFrames {
    pid: u32,
    version: u32,
    /// By their frame pointers.
    frames: HashMap<u64, V8Frame>,
}

impl PossibleFrames {
    /// The frame with a frame pointer, if it is one of JavaScript.
    pub(super) fn at(&self, bp: u64) -> Option<V8Frame> {
        self.frames.get(&bp).copied()
    }

    /// Some of these frames, or all of them, as the kernel program sends those of its walks.
    pub(super) fn event(&self, process: u64, id: u64, frames: Vec<V8Frame>) -> V8Frames {
        V8Frames {
            process,
            id,
            pid: self.pid,
            version: self.version,
            frames,
        }
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<V8Frame> {
        self.frames.values().copied().collect()
    }

    /// The bytes that it uses apart, about.
    pub(super) fn bytes_apart(&self) -> usize {
        2 * size_of::<(u64, V8Frame)>() * self.frames.len()
    }
}

impl V8 {
    /// What finds the processes.
    pub(super) fn finder(&self) -> Finder {
        Finder {
            versions: HashMap::new(),
            processes: Arc::clone(&self.processes),
        }
    }

    /// Begins a batch of events.
    pub(super) fn begin_batch(&mut self) {
        self.spent = Duration::ZERO;
        self.recognized.clear();
    }

    /// The frames of JavaScript that a raw stack may have. It is not known yet which of its words are frame pointers, and the collector moves
    /// functions all the time.
    pub(super) fn possible_frames(&mut self, pid: u32, raw: &RawFrame<'_>) -> PossibleFrames {
        let begin = Instant::now();
        let Some(process) = lock(&self.processes).get(&pid).cloned() else {
            return PossibleFrames::default();
        };
        let mut stack = raw.stack();
        let sp = raw.registers.sp;
        let innermost = (raw.registers.bp, raw.registers.ip);
        let saved = raw.words.iter().map(|word| {
            // A saved frame pointer has the return address above it.
            let above = sp.wrapping_add(word_slot(*word) * 8).wrapping_add(8);
            (word_address(*word), above)
        });
        let mut found = PossibleFrames {
            pid,
            version: process.version,
            frames: HashMap::new(),
        };
        let mut look_at = |bp: u64, return_address: u64| {
            let words = FrameWords::read(bp, return_address, |address| stack.read(address))?;
            let known = self.recognized.entry((pid, words));
            let frame = known.or_insert_with(|| v8::frame(&*process, &process.layout, words));
            found.frames.insert(bp, (*frame)?);
            Some(())
        };
        look_at(innermost.0, innermost.1);
        for (bp, above) in saved {
            if self.spent + begin.elapsed() > MAX_TIME {
                break;
            }
            if bp.wrapping_sub(sp) < raw.bytes {
                let return_address = raw.stack().read(above).unwrap_or(0);
                look_at(bp, return_address);
            }
        }
        self.spent += begin.elapsed();
        found
    }
}

/// Whether a file can hold a V8 whose version is known, by its path.
pub(super) fn is_file(path: &str) -> bool {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    let name = path.rsplit('/').next().unwrap_or(path);
    PROGRAMS.contains(&name) || name.starts_with(LIBRARY)
}

/// Finds processes with V8.
pub(super) struct Finder {
    versions: HashMap<Identity, Option<u32>>,
    processes: Processes,
}

impl Finder {
    /// What the kernel program needs to know about a process, if it has V8: which words of its stacks matter. Its generated code is walked by
    /// the frame pointer.
    pub(super) fn describe(&mut self, pid: u32, reader: &mut Reader) -> Option<Jvm> {
        let thread = maps::living_thread(pid);
        let text = maps::read(thread).ok()?;
        let mut mappings = maps::parse(&text).filter(|it| it.offset == 0 && is_file(&it.path));
        let (version, mapping) = mappings.find_map(|mapping| {
            let version = self.version(thread, &mapping, reader)?;
            Some((version, mapping))
        })?;
        let process = OfProcess {
            version,
            layout: v8::layout(version)?,
            memory: AddressSpace::open(pid).ok()?,
            mapped: mapping.start,
        };
        let mut processes = lock(&self.processes);
        if processes.len() >= MAX_PROCESSES {
            processes.retain(|_, process| process.is_there());
        }
        if processes.len() >= MAX_PROCESSES {
            return None;
        }
        processes.insert(pid, Arc::new(process));
        Some(Jvm {
            state: jvm::READY,
            archive: OBJECTS,
            ..Jvm::default()
        })
    }

    fn version(&mut self, thread: u32, mapping: &Mapping, reader: &mut Reader) -> Option<u32> {
        let opened = maps::open_mapped(thread, mapping).ok()?;
        if let Some(version) = self.versions.get(&opened.identity) {
            return *version;
        }
        if self.versions.len() >= MAX_FILES {
            self.versions.clear();
        }
        let version = v8::version_in(reader, &mapping.path, &opened.file);
        self.versions.insert(opened.identity, version);
        version
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use heaptrace_common::unwind::Registers;
    use heaptrace_common::wire::pack_word;

    use super::*;

    const SP: u64 = 0x7ffc_0000_1000;

    static HERE: u8 = 1;

    /// V8 11.3 in this process.
    fn in_this_process() -> V8 {
        let found = V8::default();
        let version = 11 << 16 | 3;
        let process = OfProcess {
            version,
            layout: v8::layout(version).unwrap(),
            memory: AddressSpace::open(std::process::id()).unwrap(),
            mapped: (&raw const HERE) as u64,
        };
        assert!(process.is_there());
        lock(&found.processes).insert(7, Arc::new(process));
        found
    }

    /// Check that the frames of a raw stack are recognized by the memory of the process as it is when the stack arrives, that words which are no
    /// frame pointers lead to none, and that a batch reads each frame once.
    #[test]
    fn frames_are_recognized_when_a_stack_arrives() {
        // Of a function, what functions share, and maps with their types.
        static OBJECTS: [AtomicU64; 24] = [const { AtomicU64::new(0) }; 24];
        let pointer = |index: usize| OBJECTS[index].as_ptr() as u64 + 1;
        let set = |index: usize, word| OBJECTS[index].store(word, Ordering::Relaxed);
        let (function, shared, map, context) = (pointer(0), pointer(8), pointer(16), pointer(20));
        set(3, shared);
        set(8, map);
        set(17, 262 << 32);
        let bp = SP + 0x80;
        let words = [(0x10, bp), (0x18, 0x5001), (0x30, 0x1234)];
        let below = [(bp - SP - 16, function), (bp - SP - 8, context)];
        let words = words.into_iter().chain(below);
        let words: Vec<_> = words.map(|(at, word)| pack_word(at / 8, word)).collect();
        let raw = RawFrame {
            registers: Registers {
                ip: 0x4001,
                sp: SP,
                bp: 1,
            },
            is_return_address: true,
            is_by_rule: true,
            bytes: 4096,
            words: &words,
        };
        let mut v8 = in_this_process();
        v8.begin_batch();
        let found = v8.possible_frames(7, &raw);
        let frame = found.at(bp).unwrap();
        assert_eq!((v8::shared(frame.shared).0, frame.place), (shared, 0x5001));
        assert_eq!((found.all(), found.at(SP)), (vec![frame], None));
        let event = found.event(5, 9, found.all());
        assert_eq!((event.pid, event.version, event.id), (7, 11 << 16 | 3, 9));
        // Another object is there now.
        set(17, 5 << 32);
        assert_eq!(v8.possible_frames(7, &raw).at(bp), Some(frame));
        v8.begin_batch();
        assert_eq!(v8.possible_frames(7, &raw).at(bp), None);
        assert_eq!(v8.possible_frames(8, &raw).at(bp), None);
    }

    /// Check which files are looked into.
    #[test]
    fn files_are_known_by_their_names() {
        for path in ["/usr/bin/node", "/a/libnode.so.108", "/x/node (deleted)"] {
            assert!(is_file(path), "{path}");
        }
        for path in ["/usr/bin/nodeenv", "/usr/lib/libnodes.so", "/node/x", ""] {
            assert!(!is_file(path), "{path}");
        }
    }
}
