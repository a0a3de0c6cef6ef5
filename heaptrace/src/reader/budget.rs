//! The budget of processor time for readers, for each owner of files and for all.
//!
//! No stage of the flow. A user who fills a machine with files that take long to read uses up the budget for that user's
//! files only. Files that are not read are listed with the reason.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::unreadable::Unreadable;

/// Most unread files that are listed by name.
const MAX_NAMED: usize = 256;

/// The owner of a file: a user on a device. A container has a device of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileOwner {
    /// The user's id.
    pub user: u32,
    /// The device.
    pub device: u64,
}

impl FileOwner {
    /// The owner of an open file.
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

    /// Whether the owner is root on a device that this system runs from (`/` or `/usr`).
    pub fn is_system(self) -> bool {
        static DEVICES: OnceLock<Vec<u64>> = OnceLock::new();
        let devices = DEVICES.get_or_init(|| {
            let device = |path: &str| std::fs::metadata(path).ok().map(|meta| meta.dev());
            ["/", "/usr"].into_iter().filter_map(device).collect()
        });
        self.user == 0 && devices.contains(&self.device)
    }
}

/// An amount of processor time that grows while a run goes on.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    at_once: Duration,
    /// The growth is the elapsed time divided by this.
    divisor: u32,
}

impl Allowance {
    fn after(self, elapsed: Duration) -> Duration {
        self.at_once + elapsed / self.divisor
    }
}

/// For the files of one user on one device.
const PER_OWNER: Allowance = Allowance {
    at_once: Duration::from_secs(60),
    divisor: 50,
};

/// For all files.
const TOTAL: Allowance = Allowance {
    at_once: Duration::from_secs(300),
    divisor: 10,
};

/// The files that were not read, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unread {
    /// How many files.
    pub count: u64,
    /// The first of these files, each with its reason.
    pub files: BTreeMap<String, String>,
}

#[derive(Debug)]
struct State {
    begun: Instant,
    used: HashMap<FileOwner, Duration>,
    total_used: Duration,
    unread: Unread,
}

/// The budget of a run, shared by all its readers.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Mutex<State>>);

impl Default for Budget {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(State {
            begun: Instant::now(),
            used: HashMap::new(),
            total_used: Duration::ZERO,
            unread: Unread::default(),
        })))
    }
}

impl Budget {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The processor time that is left for files of this owner.
    pub(super) fn left(&self, owner: FileOwner) -> Duration {
        let state = self.lock();
        let elapsed = state.begun.elapsed();
        let used = state.used.get(&owner).copied().unwrap_or_default();
        let total = TOTAL.after(elapsed).saturating_sub(state.total_used);
        if owner.is_system() {
            return total;
        }
        total.min(PER_OWNER.after(elapsed).saturating_sub(used))
    }

    /// Subtracts processor time that was used for a file of this owner.
    pub(super) fn spend(&self, owner: FileOwner, time: Duration) {
        let mut state = self.lock();
        *state.used.entry(owner).or_default() += time;
        state.total_used += time;
    }

    /// Adds a file to the list of unread files.
    pub fn record_unread(&self, name: &str, reason: &Unreadable) {
        let unread = &mut self.lock().unread;
        if unread.files.contains_key(name) {
            return;
        }
        unread.count += 1;
        if unread.files.len() < MAX_NAMED {
            unread.files.insert(name.to_owned(), reason.to_string());
        }
    }

    /// The files that were not read so far.
    pub fn unread(&self) -> Unread {
        self.lock().unread.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the files of one owner use up that owner's budget only, and that all files together use up the total.
    #[test]
    fn each_owner_has_a_budget() {
        let budget = Budget::default();
        let owner = |user| FileOwner { user, device: 1 };
        let minute = Duration::from_secs(60);
        budget.spend(owner(1), minute * 2);
        assert_eq!(budget.left(owner(1)), Duration::ZERO);
        assert!(budget.left(owner(2)) >= minute);
        budget.spend(owner(3), minute * 10);
        assert_eq!(budget.left(owner(2)), Duration::ZERO);
    }
}
