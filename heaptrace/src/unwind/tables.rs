//! Builds and loads the tables of files on threads of their own.
//!
//! Stage: unwind. The thread that reads the event ring only queues files: malicious unwind information can take seconds to
//! read, which must not delay that thread. The kernel program uses a table as soon as it is published, so no reply is needed.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use heaptrace_common::limits::{
    MAX_PYTHON_IMAGES, MAX_RULES, MAX_TABLES, MAX_V8_IMAGES, SEGMENT_SLOTS,
};
use heaptrace_common::unwind::Rule;
use heaptrace_common::wire::FileKey;

use super::cache::Cache;
use super::kernel_arrays::KernelArrays;
use super::loader::{FileStates, Loader, State};
use super::mapped_file::{MappedFile, UsingProcess};
use super::request;
use super::store::{NoRoom, StoreLimits};
use super::table::{Limits, Table};
use crate::config::TableConfig;
use crate::kernel::program::Program;
use crate::proc::processes;
use crate::reader::{self, Budget, FileOwner, Reader, Unreadable};

/// Length of the queue of files that wait for their tables; each of them is open. A file that does not fit is requested
/// again.
const QUEUE: usize = 1024;

/// Number of threads. With two, one slow file does not delay the others.
const THREADS: usize = 2;

/// The longest wait of a thread for a file before it does its housekeeping.
const TICK: Duration = Duration::from_millis(250);

/// The longest wait before a run for the tables of all running code together. Each table has a time limit of its own, too.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// Most files that are named in reports.
const MAX_NAMED: usize = 64;

/// Counters of tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableCounts {
    /// Files for whose tables there was no room.
    pub refused: u64,
    /// Tables that were removed to make room for others.
    pub evicted: u64,
    /// Files for which there was no room in the queue, and which are requested again.
    pub delayed: u64,
    /// Functions whose unwind information could not be read.
    pub damaged: u64,
    /// Tables that were read from the cache on disk.
    pub cached: u64,
}

/// What is known of a file's table, for an offset in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileTable {
    /// The rule, and whether Python's function that interprets bytecode has that code.
    Rule(Rule, bool),
    /// The file has no table.
    None,
    /// The table is requested.
    Pending,
    /// The file was not requested, or its request has failed.
    Unknown,
}

/// The tables of a run.
pub struct Tables {
    queue: SyncSender<Request>,
    states: FileStates,
    shared: Arc<Shared>,
}

struct Request {
    file: MappedFile,
    /// Whether the kernel program requested the table and waits for an answer.
    is_from_kernel: bool,
}

/// The state that all threads share.
struct Shared {
    loader: Mutex<Loader<KernelArrays>>,
    states: FileStates,
    cache: Option<Cache>,
    /// Has the list of what was not read.
    budget: Budget,
    requests: Mutex<Receiver<Request>>,
    begin: Instant,
    /// Files that the kernel program requested, and whose tables can't be built now.
    unanswered: Mutex<Vec<FileKey>>,
    /// How many requests for each file are in the queue or in work.
    pending: Mutex<HashMap<FileKey, u32>>,
    none_pending: Condvar,
    /// Files without a table for lack of room, and the processes that run them.
    refused: Mutex<BTreeSet<String>>,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    refused: AtomicU64,
    evicted: AtomicU64,
    delayed: AtomicU64,
    damaged: AtomicU64,
    cached: AtomicU64,
}

impl Tables {
    /// Starts the threads, with no table loaded.
    pub fn new(program: &mut Program, config: &TableConfig, budget: &Budget) -> Result<Self> {
        let slots = config.max_bytes / 8;
        let limits = StoreLimits {
            slots: u32::try_from(slots).unwrap_or(u32::MAX),
            segment: SEGMENT_SLOTS,
            pages: config.pages(),
            rules: MAX_RULES,
            tables: MAX_TABLES,
            pythons: MAX_PYTHON_IMAGES,
            v8s: MAX_V8_IMAGES,
        };
        let loader = Loader::new(KernelArrays::new(program)?, limits);
        let states = loader.states();
        let (queue, requests) = sync_channel(QUEUE);
        let shared = Arc::new(Shared {
            loader: Mutex::new(loader),
            states: states.clone(),
            cache: config.cache.as_deref().and_then(Cache::open),
            budget: budget.clone(),
            requests: Mutex::new(requests),
            begin: Instant::now(),
            unanswered: Mutex::default(),
            pending: Mutex::default(),
            none_pending: Condvar::new(),
            refused: Mutex::default(),
            counts: Counts::default(),
        });
        for _ in 0..THREADS {
            let shared = Arc::clone(&shared);
            let mut reader = Reader::new(budget, reader::Limits::default());
            // The threads are not joined: opening or reading a file may never return.
            std::thread::Builder::new()
                .name("heaptrace-tables".to_owned())
                .spawn(move || shared.work(&mut reader))
                .context("can't start a thread")?;
        }
        Ok(Self {
            queue,
            states,
            shared,
        })
    }

    /// Loads the tables of files, and waits for them. False if that took too long; the remaining tables are loaded later.
    pub fn load_now(&self, files: impl IntoIterator<Item = MappedFile>) -> bool {
        for file in files {
            self.load(file);
        }
        let pending = lock(&self.shared.pending);
        let waited = self
            .shared
            .none_pending
            .wait_timeout_while(pending, MAX_WAIT, |pending| !pending.is_empty());
        let waited = waited.unwrap_or_else(PoisonError::into_inner);
        !waited.1.timed_out()
    }

    /// Loads the table of a mapped file, if the file has no state yet.
    pub fn load(&self, file: MappedFile) {
        // A refused file is queued again, so that the report names each process that needs it.
        if matches!(self.states.get(file.key), None | Some(State::Refused(..))) {
            self.send(Request {
                file,
                is_from_kernel: false,
            });
        }
    }

    /// Loads the table of a file that the kernel program requested.
    pub fn answer(&self, file: MappedFile) {
        self.send(Request {
            file,
            is_from_kernel: true,
        });
    }

    /// What the table of a file has for an offset in the file.
    pub fn rule(&self, file: FileKey, at: u64) -> FileTable {
        // In this order: a table is loaded before it stops to be pending.
        let is_pending = lock(&self.shared.pending).contains_key(&file);
        let rule = lock(&self.shared.loader).rule(file, at);
        match rule {
            Some(Some((rule, is_loop))) => FileTable::Rule(rule, is_loop),
            Some(None) => FileTable::None,
            None if is_pending => FileTable::Pending,
            None => FileTable::Unknown,
        }
    }

    /// Cancels a request of the kernel program for a file that could not be opened, so that it can request the file again.
    pub fn forget(&self, file: FileKey) {
        self.shared.forget_later(file);
    }

    /// The counters so far.
    pub fn counts(&self) -> TableCounts {
        let counts = &self.shared.counts;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        TableCounts {
            refused: read(&counts.refused),
            evicted: read(&counts.evicted),
            delayed: read(&counts.delayed),
            damaged: read(&counts.damaged),
            cached: read(&counts.cached),
        }
    }

    /// Files without a table for lack of room, and the processes that run them, one sentence each.
    pub fn refused(&self) -> BTreeSet<String> {
        lock(&self.shared.refused).clone()
    }

    fn send(&self, request: Request) {
        let key = request.file.key;
        *lock(&self.shared.pending).entry(key).or_default() += 1;
        let sent = self.queue.try_send(request);
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = sent {
            self.shared.done(key);
            self.shared.counts.delayed.fetch_add(1, Ordering::Relaxed);
            self.shared.forget_later(key);
        }
    }
}

impl Shared {
    fn work(&self, reader: &mut Reader) {
        loop {
            let request = lock(&self.requests).recv_timeout(TICK);
            self.do_housekeeping();
            match request {
                Ok(request) => {
                    self.load(reader, &request);
                    self.done(request.file.key);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn done(&self, file: FileKey) {
        let mut pending = lock(&self.pending);
        if let Some(requests) = pending.get_mut(&file) {
            *requests -= 1;
            if *requests == 0 {
                pending.remove(&file);
            }
        }
        if pending.is_empty() {
            self.none_pending.notify_all();
        }
    }

    fn forget_later(&self, file: FileKey) {
        let mut unanswered = lock(&self.unanswered);
        // The kernel's map has no more entries than that.
        if unanswered.len() < MAX_TABLES as usize {
            unanswered.push(file);
        }
    }

    /// Advances the clock, and cancels requests that can't be answered.
    fn do_housekeeping(&self) {
        let unanswered = std::mem::take(&mut *lock(&self.unanswered));
        let mut loader = lock(&self.loader);
        loader.tick(self.begin.elapsed().as_secs() + 1);
        for file in unanswered {
            // Its table may have been loaded meanwhile for another reason.
            if !loader.republish(file) {
                loader.forget(file);
            }
        }
        let evicted = loader.evicted();
        self.counts.evicted.store(evicted, Ordering::Relaxed);
    }

    fn load(&self, reader: &mut Reader, request: &Request) {
        let key = request.file.key;
        match self.states.get(key) {
            None => {
                if let Err(reason) = self.load_new(reader, &request.file) {
                    self.counts.refused.fetch_add(1, Ordering::Relaxed);
                    self.record_refused(&request.file, reason);
                }
            }
            Some(state) => {
                if request.is_from_kernel {
                    lock(&self.loader).republish(key);
                }
                if let State::Refused(reason, _) = state {
                    self.record_refused(&request.file, reason);
                }
            }
        }
    }

    fn load_new(&self, reader: &mut Reader, file: &MappedFile) -> Result<(), NoRoom> {
        let limits = Limits::default();
        let name = file.name();
        let identified = match request::identify(reader, &name, &file.file, &limits) {
            Ok(identified) => identified,
            Err(reason) => {
                self.set_absent(file, &reason);
                return Ok(());
            }
        };
        if let Some(unknown) = identified.unknown {
            let reason = Unreadable::NotOpened(unknown.to_string());
            self.budget.record_unread(&name, &reason);
        }
        let fingerprint = identified.fingerprint;
        {
            let mut loader = lock(&self.loader);
            if loader.share(file.key, &fingerprint) {
                return Ok(());
            }
            // The table of an interpreter takes some tenths of a second, the first script less.
            if let Some(python) = identified.python() {
                loader.announce(file.key, python);
            }
        }
        let cached = self.cache.as_ref().and_then(|it| it.read(&fingerprint));
        let table = match cached {
            Some(table) => {
                self.counts.cached.fetch_add(1, Ordering::Relaxed);
                table
            }
            None => {
                let begin = Instant::now();
                match request::table(reader, &name, &file.file, &limits) {
                    Ok(table) => {
                        if let Some(cache) = &self.cache {
                            cache.store(&fingerprint, &table, begin.elapsed());
                        }
                        table
                    }
                    Err(reason) => {
                        self.set_absent(file, &reason);
                        return Ok(());
                    }
                }
            }
        };
        self.count_damaged(&table);
        let owner = FileOwner::of(&file.file);
        lock(&self.loader).load_of(owner, file.key, &fingerprint, &table)
    }

    fn count_damaged(&self, table: &Table) {
        let damaged = u64::from(table.damaged);
        self.counts.damaged.fetch_add(damaged, Ordering::Relaxed);
    }

    fn set_absent(&self, file: &MappedFile, reason: &str) {
        tracing::debug!("{}: {reason}", file.path);
        lock(&self.loader).set_absent(file.key);
    }

    fn record_refused(&self, file: &MappedFile, reason: NoRoom) {
        let Some(UsingProcess { pid, name }) = &file.process else {
            return;
        };
        let name = name.clone().or_else(|| processes::name(*pid));
        let process = match name {
            Some(name) => format!("{name} ({pid})"),
            None => format!("process {pid}"),
        };
        let sentence = format!("{process}: {}: {reason}", file.name());
        let mut refused = lock(&self.refused);
        if refused.len() < MAX_NAMED {
            refused.insert(sentence);
        }
    }
}

/// Locks a mutex, even if a thread panicked while it held the lock: the data behind these locks is never inconsistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
