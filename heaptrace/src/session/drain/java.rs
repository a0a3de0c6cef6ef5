//! Java: describes the virtual machines of processes to the kernel program, on a thread of its own, and reads the names of frames.
//!
//! Part of the session. Must not know how names are found, nor what becomes of them.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use heaptrace_common::wire::{Jvm, NeedJvm, jvm};

use crate::events::java::{JavaFrames, NamedJavaFrames};
use crate::hotspot::{self, Image, Machine, Named, Names, NotDescribed};
use crate::kernel::jvms::Jvms;
use crate::kernel::program::Program;
use crate::open::Identity;
use crate::proc::address_space::AddressSpace;
use crate::proc::maps;
use crate::reader::{self, Budget, Reader, Unreadable};

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

/// How often a virtual machine that is about to start is looked at, and the pause before the kernel program may ask again.
const MAX_TRIES: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(1);

/// The longest time that the names of a batch of frames may take.
const MAX_TIME: Duration = Duration::from_millis(100);

/// The virtual machines of a run.
pub(super) struct Java {
    requests: SyncSender<Request>,
    machines: Machines,
    names: HashMap<u64, Names>,
    /// How long names have been read for in this batch.
    spent: Duration,
    unnamed: u64,
}

/// A described virtual machine, with the memory of its process.
struct Described {
    machine: Machine,
    memory: AddressSpace,
    /// What it was described by.
    #[cfg(feature = "images")]
    library: (Image, u64),
}

/// The described virtual machines, by the serial number of their process record.
type Machines = Arc<Mutex<HashMap<u64, Arc<Described>>>>;

/// A request for the thread.
enum Request {
    /// The kernel program needs the virtual machine of a process.
    Need(NeedJvm),
    /// A process has mapped the file of a virtual machine.
    Mapped { pid: u32 },
}

impl Java {
    /// Starts the thread.
    pub(super) fn new(program: &mut Program, budget: &Budget) -> Result<Self> {
        let (requests, receiver) = sync_channel(QUEUE);
        let machines = Machines::default();
        let mut finder = Finder {
            jvms: program.take_jvms()?,
            reader: Reader::new(budget, reader::Limits::default()),
            budget: budget.clone(),
            images: HashMap::new(),
            machines: Arc::clone(&machines),
            tries: HashMap::new(),
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
            unnamed: 0,
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
        }
    }

    /// Begins a batch of events.
    pub(super) fn begin_batch(&mut self) {
        self.spent = Duration::ZERO;
    }

    /// Reads the names of frames.
    pub(super) fn name(&mut self, event: &JavaFrames) -> NamedJavaFrames {
        let begin = Instant::now();
        let described = lock(&self.machines).get(&event.process).cloned();
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
}

impl Finder {
    fn work(&mut self, requests: &Receiver<Request>) {
        while let Ok(request) = requests.recv() {
            match request {
                Request::Need(need) => self.answer(&need),
                Request::Mapped { pid } => {
                    // The file is read now, before the virtual machine has started.
                    let _ = self.library(pid);
                    self.jvms.remove(pid);
                }
            }
        }
    }

    fn answer(&mut self, need: &NeedJvm) {
        let none = Jvm {
            state: jvm::NONE,
            ..Jvm::default()
        };
        match self.describe(need) {
            Ok(jvm) => {
                self.tries.remove(&need.process);
                self.jvms.answer(need.tgid, jvm);
            }
            Err(NotDescribed::Unknown) => self.jvms.answer(need.tgid, none),
            Err(NotDescribed::Yet) => {
                if self.tries.len() >= MAX_MACHINES {
                    self.tries.clear();
                }
                let tries = self.tries.entry(need.process).or_default();
                *tries += 1;
                if *tries > MAX_TRIES {
                    self.jvms.answer(need.tgid, none);
                } else {
                    std::thread::sleep(PAUSE);
                    self.jvms.remove(need.tgid);
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
