//! How much processor time readers have taken, and for whose files.
//!
//! No stage of the flow. Who fills a machine with files that take long to read uses up what there is for his own files,
//! not for those of others. What was not read is named.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::client::Unreadable;

/// Most files that are named.
const MAX_NAMED: usize = 256;

/// Whose a file is: a user's, on a device. A container has a device of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner {
    /// The user's id.
    pub user: u32,
    /// The device.
    pub device: u64,
}

impl Owner {
    /// Of an open file.
    pub fn of(file: &File) -> Self {
        file.metadata()
            .map(|meta| Self {
                user: meta.uid(),
                device: meta.dev(),
            })
            .unwrap_or(Self {
                user: u32::MAX,
                device: 0,
            })
    }

    /// Whether it is this system itself: root, on the devices that it runs from.
    pub fn is_system(self) -> bool {
        static DEVICES: OnceLock<Vec<u64>> = OnceLock::new();
        let devices = DEVICES.get_or_init(|| {
            let device = |path: &str| std::fs::metadata(path).ok().map(|meta| meta.dev());
            ["/", "/usr"].into_iter().filter_map(device).collect()
        });
        self.user == 0 && devices.contains(&self.device)
    }
}

/// What readers may take: so much, and so much more with time.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    at_once: Duration,
    /// One part in so many of the time that passes.
    share: u32,
}

impl Allowance {
    fn after(self, elapsed: Duration) -> Duration {
        self.at_once + elapsed / self.share
    }
}

/// For the files of one user on one device.
const OF_ONE: Allowance = Allowance {
    at_once: Duration::from_secs(60),
    share: 50,
};

/// For all files.
const OF_ALL: Allowance = Allowance {
    at_once: Duration::from_secs(300),
    share: 10,
};

/// What was not read, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unread {
    /// How many files.
    pub count: u64,
    /// The first of them, each with its reason.
    pub files: BTreeMap<String, String>,
}

#[derive(Debug)]
struct State {
    begun: Instant,
    taken: HashMap<Owner, Duration>,
    of_all: Duration,
    unread: Unread,
}

/// Shared by all readers of a run.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Mutex<State>>);

impl Default for Budget {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(State {
            begun: Instant::now(),
            taken: HashMap::new(),
            of_all: Duration::ZERO,
            unread: Unread::default(),
        })))
    }
}

impl Budget {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How much more may be taken for a file of this owner.
    pub(super) fn left(&self, owner: Owner) -> Duration {
        let state = self.lock();
        let elapsed = state.begun.elapsed();
        let taken = state.taken.get(&owner).copied().unwrap_or_default();
        let of_all = OF_ALL.after(elapsed).saturating_sub(state.of_all);
        if owner.is_system() {
            return of_all;
        }
        of_all.min(OF_ONE.after(elapsed).saturating_sub(taken))
    }

    pub(super) fn take(&self, owner: Owner, time: Duration) {
        let mut state = self.lock();
        *state.taken.entry(owner).or_default() += time;
        state.of_all += time;
    }

    /// Notes a file that could not be read.
    pub(super) fn note(&self, name: &str, reason: &Unreadable) {
        let unread = &mut self.lock().unread;
        if unread.files.contains_key(name) {
            return;
        }
        unread.count += 1;
        if unread.files.len() < MAX_NAMED {
            unread.files.insert(name.to_owned(), reason.to_string());
        }
    }

    /// What was not read so far.
    pub fn unread(&self) -> Unread {
        self.lock().unread.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that one owner's files use up his budget and not that of others, and all together that of all.
    #[test]
    fn each_has_his_own() {
        let budget = Budget::default();
        let owner = |user| Owner { user, device: 1 };
        let minute = Duration::from_secs(60);
        budget.take(owner(1), minute * 2);
        assert_eq!(budget.left(owner(1)), Duration::ZERO);
        assert!(budget.left(owner(2)) >= minute);
        budget.take(owner(3), minute * 10);
        assert_eq!(budget.left(owner(2)), Duration::ZERO);
    }
}
