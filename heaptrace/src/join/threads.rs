//! Names of threads, where sites of threads of different names are kept apart.
//!
//! Stage: join. A thread that ended before anybody could ask for its name has none, and one that
//! changes its name is called by the new one from then on, a second later at most.

use super::interner::Interner;
use super::keyed_hash::HashMap;
use super::update::ThreadNameId;

/// How long a name is believed, in nanoseconds.
const BELIEVED: u64 = 1_000_000_000;

/// Most names of a run. A program can give every thread a new one, and each makes sites.
const MAX_NAMES: usize = 4096;

/// Most threads of a process that are remembered at a time.
const MAX_KNOWN: usize = 1 << 16;

/// What threads are called that come after so many others.
const OTHERS: &str = "[others]";

/// See the head of this file.
#[derive(Debug)]
pub(super) struct Threads {
    names: Interner<String>,
    count: usize,
    /// By serial number of the process and id of the thread.
    known: HashMap<u64, HashMap<u32, Known>>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    name: Option<ThreadNameId>,
    asked: u64,
}

impl Threads {
    pub(super) fn new() -> Self {
        Self {
            names: Interner::new(),
            count: 0,
            known: HashMap::default(),
        }
    }

    /// The name of a thread at a time.
    pub(super) fn name(
        &mut self,
        process: u64,
        tid: u32,
        time: u64,
        ask: impl FnOnce() -> Option<String>,
    ) -> Option<ThreadNameId> {
        let known = self.known.entry(process).or_default();
        let old = known.get(&tid).copied();
        if let Some(old) = old
            && time.saturating_sub(old.asked) < BELIEVED
        {
            return old.name;
        }
        let name = match ask().filter(|name| !name.is_empty()) {
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
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(tid, Known { name, asked: time });
        name
    }

    /// Forgets the threads of a process.
    pub(super) fn ended(&mut self, process: u64) {
        self.known.remove(&process);
    }

    /// The names that came since the last call.
    pub(super) fn take_new(&mut self) -> Vec<String> {
        self.names.take_new()
    }
}

/// Name of a thread that is there.
pub(super) fn ask(pid: u32, tid: u32) -> Option<String> {
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

    /// Check that a thread is asked once in a while, keeps its name when it is gone, and that those
    /// of one name are one.
    #[test]
    fn names_are_believed_for_a_while() {
        let mut threads = Threads::new();
        let first = threads.name(1, 10, 0, named("a"));
        assert_eq!(threads.name(1, 10, BELIEVED - 1, named("b")), first);
        let second = threads.name(1, 10, BELIEVED, named("b"));
        assert_ne!(second, first);
        assert_eq!(threads.name(1, 10, 3 * BELIEVED, || None), second);
        assert_eq!(threads.name(2, 10, 0, named("a")), first);
        assert_eq!(threads.name(1, 11, 0, || None), None);
        assert_eq!(threads.take_new(), ["a", "b"]);
        threads.ended(1);
        assert_eq!(threads.name(1, 10, 0, || None), None);
    }

    /// Check that a program which makes up names without end is bounded.
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

    /// Check that a thread that is there has its name.
    #[test]
    fn of_threads() {
        let own = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
        let pid = std::process::id();
        // SAFETY: takes no arguments.
        let tid = unsafe { libc::gettid() } as u32;
        assert_eq!(ask(pid, tid).as_deref(), Some(own.trim_end()));
        assert_eq!(ask(u32::MAX, 1), None);
    }
}
