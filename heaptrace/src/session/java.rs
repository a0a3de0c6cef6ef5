//! Java: describes the virtual machines of processes to the kernel program, on a thread of its own, and reads the names of frames.
//!
//! Part of the session. Must not know how names are found, nor what becomes of them.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use heaptrace_common::java::{METHOD, is_generated, step};
use heaptrace_common::unwind::{LOST_BP, Memory, Registers};
use heaptrace_common::wire::{JavaFrame, Jvm, NeedJvm, jvm, word_address};

use super::v8::{self, V8};
use crate::events::java::{JavaFrames, NamedJavaFrames};
use crate::hotspot::{self, Image, Machine, Memory as _, Named, Names, NotDescribed};
use crate::kernel::jvms::Jvms;
use crate::kernel::program::Program;
use crate::open::Identity;
use crate::proc::address_space::AddressSpace;
use crate::proc::maps;
use crate::reader::{self, Budget, Reader, Unreadable};
use crate::unwind::RawFrame;

/// The file of the virtual machine.
const LIBRARY: &str = "/libjvm.so";

/// What reports say of a virtual machine that can't be described.
const UNKNOWN: &str =
    "its version of Java is not known: Java's methods are not shown (see docs/limits.md)";

/// Most requests that wait.
const QUEUE: usize = 256;

/// Most virtual machines that are described at a time. Each one has an open file.
const MAX_MACHINES: usize = 1024;

/// Most files whose descriptions are kept.
const MAX_IMAGES: usize = 64;

/// How often a virtual machine that is about to start is looked at, and the pauses before the kernel program may ask again: most start at
/// once, and some prepare a large heap first.
const MAX_TRIES: u32 = 1000;
const SHORT_PAUSES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(1);
const LONG_PAUSE: Duration = Duration::from_millis(10);

/// The longest time that the names of a batch of frames may take.
const MAX_TIME: Duration = Duration::from_millis(100);

/// The virtual machines of a run.
pub(super) struct Java {
    requests: SyncSender<Request>,
    machines: Machines,
    names: HashMap<u64, Names>,
    /// How long names have been read for in this batch.
    spent: Duration,
    /// What was read ahead in this batch, by process.
    read: HashMap<u64, HashMap<u64, u64>>,
    unnamed: u64,
    /// The processes with V8, which the same thread finds.
    pub(super) v8: V8,
}

/// A described virtual machine, with the memory of its process.
pub(super) struct Described {
    machine: Machine,
    memory: AddressSpace,
    /// What it was described by.
    #[cfg(feature = "images")]
    library: (Image, u64),
}

impl Described {
    /// Whether it has generated the code at an address.
    pub(super) fn has_generated(&self, address: u64) -> bool {
        is_generated(&self.machine.jvm, address)
    }

    /// Steps from a frame of its code to the caller, as the kernel program does. Words that were read before are as they were then.
    pub(super) fn step(
        &self,
        pc: u64,
        registers: &mut Registers,
        stack: &mut impl Memory,
        before: &ReadWords,
    ) -> (u32, JavaFrame) {
        let mut memory = EarlierOrNow(before, &self.memory);
        self.step_with(pc, registers, stack, &mut memory)
    }

    fn step_with(
        &self,
        pc: u64,
        registers: &mut Registers,
        stack: &mut impl Memory,
        memory: &mut impl Memory,
    ) -> (u32, JavaFrame) {
        let mut frame = JavaFrame::default();
        let outcome = step(&self.machine.jvm, pc, registers, stack, memory, &mut frame);
        (outcome, frame)
    }
}

/// Words of the memory of a process, by their address.
#[derive(Debug, Default)]
pub(super) struct ReadWords(HashMap<u64, u64>);

impl ReadWords {
    /// The bytes that it uses apart, about.
    pub(super) fn bytes_apart(&self) -> usize {
        2 * size_of::<(u64, u64)>() * self.0.len()
    }
}

/// The memory of a process: as it was before, or else as it is now.
struct EarlierOrNow<'a>(&'a ReadWords, &'a AddressSpace);

impl Memory for EarlierOrNow<'_> {
    fn read(&mut self, address: u64) -> Option<u64> {
        let Self(ReadWords(before), now) = self;
        before.get(&address).copied().or_else(|| now.word(address))
    }
}

/// The memory of a process as it is now. Keeps what is read, and reads each word once in a batch of events.
struct ReadingAhead<'a> {
    now: &'a AddressSpace,
    batch: &'a mut HashMap<u64, u64>,
    read: ReadWords,
}

impl Memory for ReadingAhead<'_> {
    fn read(&mut self, address: u64) -> Option<u64> {
        let word = match self.batch.get(&address) {
            Some(word) => *word,
            None => {
                let word = self.now.word(address)?;
                self.batch.insert(address, word);
                word
            }
        };
        self.read.0.insert(address, word);
        Some(word)
    }
}

/// The described virtual machines, by the serial number of their process record.
type Machines = Arc<Mutex<HashMap<u64, Arc<Described>>>>;

/// A request for the thread.
enum Request {
    /// The kernel program needs the virtual machine of a process.
    Need(NeedJvm),
    /// A process has mapped the file of a virtual machine.
    Mapped { pid: u32 },
    /// A process has mapped a file that can hold V8.
    MappedV8 { pid: u32 },
}

impl Java {
    /// Starts the thread.
    pub(super) fn new(program: &mut Program, budget: &Budget) -> Result<Self> {
        let (requests, receiver) = sync_channel(QUEUE);
        let machines = Machines::default();
        let v8 = V8::default();
        let mut finder = Finder {
            jvms: program.take_jvms()?,
            reader: Reader::new(budget, reader::Limits::default()),
            budget: budget.clone(),
            images: HashMap::new(),
            machines: Arc::clone(&machines),
            tries: HashMap::new(),
            v8: v8.finder(),
        };
        // The thread is not joined: opening a file may never return.
        std::thread::Builder::new()
            .name("heaptrace-java".to_owned())
            .spawn(move || finder.work(&receiver))
            .context("can't start a thread")?;
        Ok(Self {
            requests,
            machines,
            names: HashMap::new(),
            spent: Duration::ZERO,
            read: HashMap::new(),
            unnamed: 0,
            v8,
        })
    }

    /// Answers the kernel program.
    pub(super) fn need(&self, need: NeedJvm) {
        // Without room, the process stays without Java frames.
        let _ = self.requests.try_send(Request::Need(need));
    }

    /// Notes that a process has mapped a file.
    pub(super) fn mapped(&self, pid: u32, path: &str) {
        if is_library(path) {
            let _ = self.requests.try_send(Request::Mapped { pid });
        } else if v8::is_file(path) {
            let _ = self.requests.try_send(Request::MappedV8 { pid });
        }
    }

    /// Begins a batch of events.
    pub(super) fn begin_batch(&mut self) {
        self.spent = Duration::ZERO;
        self.read.clear();
        self.v8.begin_batch();
    }

    /// The virtual machine of a process, if it is described.
    pub(super) fn machine(&self, process: u64) -> Option<Arc<Described>> {
        lock(&self.machines).get(&process).cloned()
    }

    /// Reads what a walk through a raw stack may need beside the stack, and the names of frames of Java there, while the process has both.
    /// It is not known yet which of the stack's words belong to such frames.
    pub(super) fn read_ahead(&mut self, process: u64, raw: &RawFrame<'_>) -> ReadWords {
        let begin = Instant::now();
        let Some(described) = self.machine(process) else {
            return ReadWords::default();
        };
        let Described {
            machine, memory, ..
        } = &*described;
        let names = self.names.entry(process).or_default();
        let mut memory_now = ReadingAhead {
            now: memory,
            batch: self.read.entry(process).or_default(),
            read: ReadWords::default(),
        };
        let mut stack = raw.stack();
        let sp = raw.registers.sp;
        for word in raw.words {
            if self.spent + begin.elapsed() > MAX_TIME {
                break;
            }
            let address = word_address(*word);
            let (pc, bp) = if described.has_generated(address) {
                (address.wrapping_sub(1), LOST_BP)
            } else if address.wrapping_sub(sp) < raw.bytes && is_interpreted(address, &mut stack) {
                (machine.jvm.interpreter.start, address)
            } else {
                continue;
            };
            let mut registers = Registers {
                ip: address,
                sp,
                bp,
            };
            let (_, frame) = described.step_with(pc, &mut registers, &mut stack, &mut memory_now);
            if frame != JavaFrame::default() {
                names.named(memory, machine, frame);
            }
        }
        self.spent += begin.elapsed();
        memory_now.read
    }

    /// Reads the names of frames. Those further in have this id; 0 if there are none.
    pub(super) fn name(&mut self, event: &JavaFrames, after: u64) -> NamedJavaFrames {
        let begin = Instant::now();
        let described = self.machine(event.process);
        #[cfg(feature = "images")]
        if let Some(it) = &described {
            hotspot::record(&it.memory, it.library, &event.frames);
        }
        let names = self.names.entry(event.process).or_default();
        let named = event.frames.iter().map(|frame| match &described {
            Some(it) if self.spent + begin.elapsed() < MAX_TIME => {
                names.named(&it.memory, &it.machine, *frame)
            }
            _ => Named::Unknown,
        });
        let frames: Vec<_> = named.collect();
        self.spent += begin.elapsed();
        let unnamed = frames.iter().filter(|it| **it == Named::Unknown);
        self.unnamed += unnamed.count() as u64;
        NamedJavaFrames {
            process: event.process,
            id: event.id,
            after: (after != 0).then_some(after),
            frames,
        }
    }

    /// Forgets a process that has ended.
    pub(super) fn forget(&mut self, process: u64) {
        self.names.remove(&process);
        lock(&self.machines).remove(&process);
    }

    /// Frames whose names could not be read.
    pub(super) fn unnamed(&self) -> u64 {
        self.unnamed
    }
}

/// Whether the words at a frame pointer can be those of the interpreter.
fn is_interpreted(bp: u64, stack: &mut impl Memory) -> bool {
    let method = stack.read(bp.wrapping_sub(METHOD));
    method.is_some_and(|it| it != 0 && it != LOST_BP && it.is_multiple_of(8))
}

/// No description.
fn in_state(state: u32) -> Jvm {
    Jvm {
        state,
        ..Jvm::default()
    }
}

fn is_library(path: &str) -> bool {
    path.strip_suffix(" (deleted)")
        .unwrap_or(path)
        .ends_with(LIBRARY)
}

/// Finds and describes virtual machines.
struct Finder {
    jvms: Jvms,
    reader: Reader,
    budget: Budget,
    images: HashMap<Identity, Option<Image>>,
    machines: Machines,
    /// How often a process was found to be about to start its virtual machine.
    tries: HashMap<u64, u32>,
    v8: v8::Finder,
}

impl Finder {
    fn work(&mut self, requests: &Receiver<Request>) {
        while let Ok(request) = requests.recv() {
            match request {
                Request::Need(need) => self.answer(&need),
                Request::Mapped { pid } => {
                    // The file is read now, before the virtual machine has started.
                    match self.library(pid) {
                        Some(_) => self.jvms.set(pid, in_state(jvm::EXPECTED)),
                        None => self.jvms.remove(pid),
                    }
                }
                Request::MappedV8 { pid } => {
                    if let Some(it) = self.v8.describe(pid, &mut self.reader) {
                        self.jvms.set(pid, it);
                    }
                }
            }
        }
    }

    fn answer(&mut self, need: &NeedJvm) {
        let none = || in_state(jvm::NONE);
        match self.describe(need) {
            Ok(jvm) => {
                self.tries.remove(&need.process);
                self.jvms.answer(need.tgid, jvm);
            }
            Err(NotDescribed::Unknown) => {
                let of_v8 = self.v8.describe(need.tgid, &mut self.reader);
                self.jvms.answer(need.tgid, of_v8.unwrap_or_else(none));
            }
            Err(NotDescribed::Yet) => {
                if self.tries.len() >= MAX_MACHINES {
                    self.tries.clear();
                }
                let tries = self.tries.entry(need.process).or_default();
                *tries += 1;
                if *tries > MAX_TRIES {
                    self.jvms.answer(need.tgid, none());
                } else {
                    std::thread::sleep(match *tries <= SHORT_PAUSES {
                        true => PAUSE,
                        false => LONG_PAUSE,
                    });
                    self.jvms.answer(need.tgid, in_state(jvm::EXPECTED));
                }
            }
        }
    }

    fn describe(&mut self, need: &NeedJvm) -> Result<Jvm, NotDescribed> {
        let (image, base) = self.library(need.tgid).ok_or(NotDescribed::Unknown)?;
        let memory = AddressSpace::open(need.tgid).map_err(|_| NotDescribed::Unknown)?;
        let machine = hotspot::describe(&memory, image, base).inspect_err(|reason| {
            if *reason == NotDescribed::Unknown {
                let name = format!("the {} of process {}", &LIBRARY[1..], need.tgid);
                let reason = Unreadable::NotOpened(UNKNOWN.to_owned());
                self.budget.record_unread(&name, &reason);
            }
        })?;
        let jvm = machine.jvm;
        let mut machines = lock(&self.machines);
        if machines.len() >= MAX_MACHINES {
            return Err(NotDescribed::Unknown);
        }
        let described = Described {
            machine,
            memory,
            #[cfg(feature = "images")]
            library: (image, base),
        };
        machines.insert(need.process, Arc::new(described));
        Ok(jvm)
    }

    /// The description in the file of a process's virtual machine, and where the file is mapped.
    fn library(&mut self, pid: u32) -> Option<(Image, u64)> {
        let thread = maps::living_thread(pid);
        let text = maps::read(thread).ok()?;
        let mapping = maps::parse(&text).find(|it| it.offset == 0 && is_library(&it.path))?;
        let opened = maps::open_mapped(thread, &mapping).ok()?;
        let image = match self.images.get(&opened.identity) {
            Some(image) => *image,
            None => {
                if self.images.len() >= MAX_IMAGES {
                    self.images.clear();
                }
                let image = hotspot::image(&mut self.reader, &mapping.path, &opened.file);
                self.images.insert(opened.identity, image);
                image
            }
        };
        Some((image?, mapping.start))
    }
}

/// Locks a mutex, even if a thread panicked while it held the lock: the data behind it is never inconsistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Check that a word which was read ahead stays as it was when the memory changes, also for other stacks of the batch, and that any
    /// other word is as it is now.
    #[test]
    fn words_that_were_read_ahead_stay() {
        static WORDS: [AtomicU64; 2] = [AtomicU64::new(1), AtomicU64::new(2)];
        let address = |index: usize| WORDS[index].as_ptr() as u64;
        let now = AddressSpace::open(std::process::id()).unwrap();
        let mut batch = HashMap::new();
        let mut read_ahead = || {
            let mut ahead = ReadingAhead {
                now: &now,
                batch: &mut batch,
                read: ReadWords::default(),
            };
            (ahead.read(address(0)), ahead.read(8), ahead.read)
        };
        let (first, nowhere, words) = read_ahead();
        assert_eq!((first, nowhere), (Some(1), None));
        for word in &WORDS {
            word.store(7, Ordering::Relaxed);
        }
        let mut later = EarlierOrNow(&words, &now);
        let read = [0, 1].map(|index| later.read(address(index)));
        assert_eq!(read, [Some(1), Some(7)]);
        assert_eq!(read_ahead().0, Some(1));
        assert!(words.bytes_apart() > 0);
    }
}
