//! Names of threads, if threads of different names have sites of their own.
//!
//! Stage: join. A thread that ended before its name could be read has none. A thread that changes its name
//! has the new one after a second at most.

use super::interner::Interner;
use super::keyed_hash::HashMap;
use super::update::ThreadNameId;

/// How long a name stays cached, in nanoseconds.
const MAX_AGE: u64 = 1_000_000_000;

/// Most names of a run. A program can give every thread a new name, and each name makes sites.
const MAX_NAMES: usize = 4096;

/// Most threads of a process whose names are cached.
const MAX_CACHED: usize = 1 << 16;

/// The name of all threads beyond [`MAX_NAMES`].
const OTHERS: &str = "[others]";

/// The names of a run.
#[derive(Debug)]
pub(super) struct Threads {
    names: Interner<String>,
    /// Distinct names.
    count: usize,
    /// By serial number of the process and id of the thread.
    cache: HashMap<u64, HashMap<u32, CachedName>>,
}

#[derive(Clone, Copy, Debug)]
struct CachedName {
    name: Option<ThreadNameId>,
    read_at: u64,
}

impl Threads {
    pub(super) fn new() -> Self {
        Self {
            names: Interner::new(),
            count: 0,
            cache: HashMap::default(),
        }
    }

    /// The name of a thread at a time; `read` reads it if it is not cached.
    pub(super) fn name(
        &mut self,
        process: u64,
        tid: u32,
        time: u64,
        read: impl FnOnce() -> Option<String>,
    ) -> Option<ThreadNameId> {
        let cache = self.cache.entry(process).or_default();
        let old = cache.get(&tid).copied();
        if let Some(old) = old
            && time.saturating_sub(old.read_at) < MAX_AGE
        {
            return old.name;
        }
        let name = match read().filter(|name| !name.is_empty()) {
            Some(name) => {
                let name = if self.count < MAX_NAMES {
                    name
                } else {
                    OTHERS.to_owned()
                };
                let id = self.names.intern(&name);
                self.count = self.count.max(id as usize + 1);
                Some(ThreadNameId(id))
            }
            None => old.and_then(|old| old.name),
        };
        if cache.len() >= MAX_CACHED {
            cache.clear();
        }
        let read_at = time;
        cache.insert(tid, CachedName { name, read_at });
        name
    }

    /// Forgets the threads of a process.
    pub(super) fn ended(&mut self, process: u64) {
        self.cache.remove(&process);
    }

    /// The names that are new since the last call.
    pub(super) fn take_new(&mut self) -> Vec<String> {
        self.names.take_new()
    }
}

/// Reads the name of a running thread.
pub(super) fn read_name(pid: u32, tid: u32) -> Option<String> {
    let bytes = std::fs::read(format!("/proc/{pid}/task/{tid}/comm")).ok()?;
    let name = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    Some(String::from_utf8_lossy(name).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> impl FnOnce() -> Option<String> {
        let name = Some(name.to_owned());
        move || name
    }

    /// Check that a name is read again after a while, that a thread keeps its name when it is gone, and that
    /// equal names have one id.
    #[test]
    fn names_are_cached_for_a_while() {
        let mut threads = Threads::new();
        let first = threads.name(1, 10, 0, named("a"));
        assert_eq!(threads.name(1, 10, MAX_AGE - 1, named("b")), first);
        let second = threads.name(1, 10, MAX_AGE, named("b"));
        assert_ne!(second, first);
        assert_eq!(threads.name(1, 10, 3 * MAX_AGE, || None), second);
        assert_eq!(threads.name(2, 10, 0, named("a")), first);
        assert_eq!(threads.name(1, 11, 0, || None), None);
        assert_eq!(threads.take_new(), ["a", "b"]);
        threads.ended(1);
        assert_eq!(threads.name(1, 10, 0, || None), None);
    }

    /// Check that a program with endless new names gets a limited number of them.
    #[test]
    fn names_are_bounded() {
        let mut threads = Threads::new();
        for tid in 0..10_000 {
            threads.name(1, tid, 0, named(&format!("thread {tid}")));
        }
        let names = threads.take_new();
        assert_eq!(names.len(), MAX_NAMES + 1);
        assert_eq!(names.last().map(String::as_str), Some(OTHERS));
    }

    /// Check that the name of a running thread is read.
    #[test]
    fn running_threads_have_names() {
        let own = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
        let pid = std::process::id();
        // SAFETY: takes no arguments.
        let tid = unsafe { libc::gettid() } as u32;
        assert_eq!(read_name(pid, tid).as_deref(), Some(own.trim_end()));
        assert_eq!(read_name(u32::MAX, 1), None);
    }
}
