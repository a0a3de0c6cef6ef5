//! Tables of files, made and loaded on threads of their own.
//!
//! Stage: unwind. Whoever reads the events of a run only hands files over: what a file's unwind
//! information costs to read, up to seconds where it is made to, never keeps him from his ring. The
//! kernel program uses a table as soon as it is named, so nobody has to hear of it.

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use heaptrace_common::limits::{MAX_RULES, MAX_TABLES, SEGMENT_SLOTS};
use heaptrace_common::wire::FileKey;

use super::arrays::KernelArrays;
use super::ask;
use super::cache::Cache;
use super::files::{MappedFile, User};
use super::loader::{Files, Loader, State};
use super::store::{NoPlace, StoreLimits};
use super::table::{Limits, Table};
use crate::config::TableConfig;
use crate::kernel::program::Program;
use crate::reader::{self, Budget, FileOwner, Reader};

/// Files that can wait for their tables; each is an open one. One that finds no place among them is asked for
/// again.
const QUEUE: usize = 1024;

/// Threads: one file that takes long does not keep the others waiting.
const THREADS: usize = 2;

/// How long a thread waits for a file before it looks at what else there is to do.
const TICK: Duration = Duration::from_millis(250);

/// How long the tables of what runs already are waited for before a run begins, all together. Each
/// has its own limit of time, too.
const PATIENCE: Duration = Duration::from_secs(10);

/// Most files that are named in reports.
const MAX_NAMED: usize = 64;

/// How it went so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableCounts {
    /// Files whose tables found no place.
    pub refused: u64,
    /// Tables that made room for others.
    pub evicted: u64,
    /// Files that found no place in the queue, to be asked for again.
    pub delayed: u64,
    /// Functions whose unwind information was not understood.
    pub damaged: u64,
    /// Tables that were read from disk.
    pub cached: u64,
}

/// The tables of a run.
pub struct Tables {
    queue: SyncSender<Job>,
    files: Files,
    shared: Arc<Shared>,
}

struct Job {
    file: MappedFile,
    /// Whether the kernel program asked for it, and waits for an answer.
    is_asked: bool,
}

/// What the threads share.
struct Shared {
    loader: Mutex<Loader<KernelArrays>>,
    files: Files,
    cache: Option<Cache>,
    jobs: Mutex<Receiver<Job>>,
    begin: Instant,
    /// Files that were asked for, and whose tables can't be made now.
    unanswered: Mutex<Vec<FileKey>>,
    /// Files that wait or are at work.
    pending: Mutex<usize>,
    none_pending: Condvar,
    /// What has no table for lack of room, and who needs it.
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
    /// With nothing loaded.
    pub fn new(program: &mut Program, config: &TableConfig, budget: &Budget) -> Result<Self> {
        let slots = config.max_bytes / 8;
        let limits = StoreLimits {
            slots: u32::try_from(slots).unwrap_or(u32::MAX),
            segment: SEGMENT_SLOTS,
            pages: config.pages(),
            rules: MAX_RULES,
            tables: MAX_TABLES,
        };
        let loader = Loader::new(KernelArrays::new(program)?, limits);
        let files = loader.files();
        let (queue, jobs) = sync_channel(QUEUE);
        let shared = Arc::new(Shared {
            loader: Mutex::new(loader),
            files: files.clone(),
            cache: config.cache.as_deref().and_then(Cache::open),
            jobs: Mutex::new(jobs),
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
            // Nobody waits for their ends: a file can be one whose opening or reading never returns.
            std::thread::Builder::new()
                .name("heaptrace-tables".to_owned())
                .spawn(move || shared.work(&mut reader))
                .context("can't start a thread")?;
        }
        Ok(Self {
            queue,
            files,
            shared,
        })
    }

    /// Loads the tables of files, and waits for them. False where that took too long; what is left comes later.
    pub fn load_now(&self, files: impl IntoIterator<Item = MappedFile>) -> bool {
        for file in files {
            self.load(file);
        }
        let pending = lock(&self.shared.pending);
        let waited = self
            .shared
            .none_pending
            .wait_timeout_while(pending, PATIENCE, |pending| *pending > 0);
        let waited = waited.unwrap_or_else(PoisonError::into_inner);
        !waited.1.timed_out()
    }

    /// Loads the table of a file that is mapped, if nothing is known of it.
    pub fn load(&self, file: MappedFile) {
        // Whom a table is missing to is to be said, whoever asked first.
        if matches!(self.files.state(file.key), None | Some(State::Refused(..))) {
            self.send(Job {
                file,
                is_asked: false,
            });
        }
    }

    /// Loads the table of a file that the kernel program asked for.
    pub fn answer(&self, file: MappedFile) {
        self.send(Job {
            file,
            is_asked: true,
        });
    }

    /// Takes back that the kernel program asked for a file: it could not be opened, and may be another time.
    pub fn forget(&self, file: FileKey) {
        self.shared.forget_later(file);
    }

    /// How it went so far.
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

    /// What has no table for lack of room, and who needs it, one sentence each.
    pub fn refused(&self) -> BTreeSet<String> {
        lock(&self.shared.refused).clone()
    }

    fn send(&self, job: Job) {
        let key = job.file.key;
        *lock(&self.shared.pending) += 1;
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = self.queue.try_send(job)
        {
            self.shared.done();
            self.shared.counts.delayed.fetch_add(1, Ordering::Relaxed);
            self.shared.forget_later(key);
        }
    }
}

impl Shared {
    fn work(&self, reader: &mut Reader) {
        loop {
            let job = lock(&self.jobs).recv_timeout(TICK);
            self.keep_house();
            match job {
                Ok(job) => {
                    self.load(reader, &job);
                    self.done();
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn done(&self) {
        let mut pending = lock(&self.pending);
        *pending = pending.saturating_sub(1);
        if *pending == 0 {
            self.none_pending.notify_all();
        }
    }

    fn forget_later(&self, file: FileKey) {
        let mut unanswered = lock(&self.unanswered);
        // The kernel's map takes no more names than that.
        if unanswered.len() < MAX_TABLES as usize {
            unanswered.push(file);
        }
    }

    fn keep_house(&self) {
        let unanswered = std::mem::take(&mut *lock(&self.unanswered));
        let mut loader = lock(&self.loader);
        loader.tick(self.begin.elapsed().as_secs() + 1);
        for file in unanswered {
            // Meanwhile it may have come by another way.
            if !loader.repeat(file) {
                loader.forget(file);
            }
        }
        let evicted = loader.evicted();
        self.counts.evicted.store(evicted, Ordering::Relaxed);
    }

    fn load(&self, reader: &mut Reader, job: &Job) {
        let key = job.file.key;
        match self.files.state(key) {
            None => {
                if let Err(reason) = self.load_new(reader, &job.file) {
                    self.counts.refused.fetch_add(1, Ordering::Relaxed);
                    self.name_refused(&job.file, reason);
                }
            }
            Some(state) => {
                if job.is_asked {
                    lock(&self.loader).repeat(key);
                }
                if let State::Refused(reason, _) = state {
                    self.name_refused(&job.file, reason);
                }
            }
        }
    }

    fn load_new(&self, reader: &mut Reader, file: &MappedFile) -> Result<(), NoPlace> {
        let limits = Limits::default();
        let name = file.name();
        let fingerprint = match ask::fingerprint(reader, &name, &file.file, &limits) {
            Ok(fingerprint) => fingerprint,
            Err(reason) => {
                self.set_absent(file, &reason);
                return Ok(());
            }
        };
        if lock(&self.loader).share(file.key, &fingerprint) {
            return Ok(());
        }
        let kept = self.cache.as_ref().and_then(|it| it.read(&fingerprint));
        let table = match kept {
            Some(table) => {
                self.counts.cached.fetch_add(1, Ordering::Relaxed);
                table
            }
            None => {
                let begin = Instant::now();
                match ask::table(reader, &name, &file.file, &limits) {
                    Ok(table) => {
                        if let Some(cache) = &self.cache {
                            cache.keep(&fingerprint, &table, begin.elapsed());
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

    fn name_refused(&self, file: &MappedFile, reason: NoPlace) {
        let Some(User { pid, name }) = &file.user else {
            return;
        };
        let name = name.clone().or_else(|| {
            let comm = fs::read(format!("/proc/{pid}/comm")).ok()?;
            Some(String::from_utf8_lossy(&comm).trim_end().to_owned())
        });
        let user = match name {
            Some(name) => format!("{name} ({pid})"),
            None => format!("process {pid}"),
        };
        let sentence = format!("{user}: {}: {reason}", file.name());
        let mut refused = lock(&self.refused);
        if refused.len() < MAX_NAMED {
            refused.insert(sentence);
        }
    }
}

/// Whatever a thread leaves when it fails is whole: nothing is half done between two statements here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
