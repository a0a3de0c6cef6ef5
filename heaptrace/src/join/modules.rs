//! Files that were mapped executable, each held open until it has been symbolized.
//!
//! Stage: join. When names are looked up, a process may be gone, and its files replaced or deleted; an open
//! descriptor keeps the right file. The kernel's identity of a file tells modules apart, never the build id
//! that the file claims.

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;

use super::update::{Module, ModuleId};
use crate::open::{Expected, FileId, Identity, Opened};
use crate::proc::build_id::Build;
use crate::sys;
use crate::text::file_name;

/// Most files that are held open. Later files have no names.
const MAX_OPEN: u64 = 8192;

/// Every module of a run.
#[derive(Debug)]
pub(super) struct Modules {
    /// Modules with an open file, by the file and its path.
    opened: HashMap<(Identity, String), ModuleId>,
    /// The last module of each file, by the numbers in the mapping and the path.
    latest: HashMap<(Expected, String), ModuleId>,
    entries: Vec<Entry>,
    new: Vec<Module>,
    /// New modules that need to be identified.
    unidentified: Vec<ModuleId>,
    /// Modules that were handed out and have another `started_as` since.
    started: Vec<(ModuleId, String)>,
    files: OpenFiles,
    most_open: u64,
}

/// A module, as this table keeps it.
#[derive(Debug)]
struct Entry {
    path: String,
    expected: Expected,
    identity: Option<Identity>,
    started: Started,
}

/// The names by which a file was started as a program.
#[derive(Debug, Default)]
enum Started {
    /// It was not, or the name is unknown.
    #[default]
    Never,
    /// Each time the same.
    As(String),
    /// Several, so none of them stands for the file.
    Variously,
}

/// The files of modules, as far as they could be opened.
#[derive(Clone, Debug, Default)]
pub struct OpenFiles {
    files: Vec<Option<Arc<File>>>,
    open: u64,
}

impl OpenFiles {
    /// A module's file.
    pub fn file(&self, id: ModuleId) -> Option<Arc<File>> {
        self.files.get(id.0 as usize)?.clone()
    }
}

impl Default for Modules {
    fn default() -> Self {
        Self {
            opened: HashMap::new(),
            latest: HashMap::new(),
            entries: Vec::new(),
            new: Vec::new(),
            unidentified: Vec::new(),
            started: Vec::new(),
            files: OpenFiles::default(),
            // The probes need the other half of the descriptors.
            most_open: MAX_OPEN.min(sys::most_open_files() / 2),
        }
    }
}

impl Modules {
    /// The id of a module. If the module is new, `open` opens its file.
    pub(super) fn intern(
        &mut self,
        module: Module,
        expected: Expected,
        open: impl FnOnce() -> Option<Opened>,
    ) -> ModuleId {
        let key = (expected, module.path.clone());
        let latest = self.latest.get(&key).copied();
        if let Some(id) = latest
            && self.is_unchanged(id)
        {
            return id;
        }
        let opened = (self.files.open < self.most_open).then(open).flatten();
        let id = match (opened, latest) {
            (Some(opened), _) => {
                let key = (opened.identity, module.path.clone());
                match self.opened.get(&key) {
                    Some(id) => *id,
                    None => {
                        let id = self.add(module, expected, Some(opened));
                        self.opened.insert(key, id);
                        id
                    }
                }
            }
            (None, Some(id)) if self.files.file(id).is_none() => id,
            (None, _) => self.add(module, expected, None),
        };
        self.latest.insert(key, id);
        id
    }

    /// Whether a module's file is open and has not changed. While it is open, no other file gets its numbers.
    fn is_unchanged(&self, id: ModuleId) -> bool {
        let file = self.files.file(id);
        let now = file.and_then(|file| Identity::of(&file).ok());
        let entry = self.entries.get(id.0 as usize);
        now.is_some() && entry.is_some_and(|entry| entry.identity == now)
    }

    fn add(&mut self, module: Module, expected: Expected, opened: Option<Opened>) -> ModuleId {
        let id = ModuleId(self.entries.len() as u32);
        self.entries.push(Entry {
            path: module.path.clone(),
            expected,
            identity: opened.as_ref().map(|it| it.identity),
            started: Started::Never,
        });
        if opened.is_some() {
            self.files.open += 1;
            self.unidentified.push(id);
        }
        self.files.files.push(opened.map(|it| Arc::new(it.file)));
        self.new.push(module);
        id
    }

    /// Whether a module belongs to a file, by the kernel's numbers.
    pub(super) fn is_of(&self, id: ModuleId, file: FileId, path: &str) -> bool {
        self.entries
            .get(id.0 as usize)
            .is_some_and(|entry| match entry.identity {
                Some(identity) => identity.file == file,
                None => file.may_be(&entry.expected) && entry.path == path,
            })
    }

    /// The identity of a module's file, if it was opened.
    pub(super) fn identity(&self, id: ModuleId) -> Option<Identity> {
        self.entries.get(id.0 as usize)?.identity
    }

    /// The path of a module.
    pub(super) fn path(&self, id: ModuleId) -> &str {
        let entry = self.entries.get(id.0 as usize);
        entry.map_or("", |entry| &entry.path)
    }

    /// The new modules that need to be identified, with their paths and files.
    pub(super) fn take_unidentified(&mut self) -> Vec<(ModuleId, String, Arc<File>)> {
        std::mem::take(&mut self.unidentified)
            .into_iter()
            .filter_map(|id| Some((id, self.path(id).to_owned(), self.files.file(id)?)))
            .collect()
    }

    /// Sets the build of a module that was not handed out yet.
    pub(super) fn identify(&mut self, id: ModuleId, build: Build) {
        if let Some(module) = self.new_module(id) {
            module.text_address = build.address_of(module.text_offset);
            module.build_id = build.id;
        }
    }

    /// Records that a module was started as a program, by this name.
    pub(super) fn start(&mut self, id: ModuleId, name: String) {
        let Some(entry) = self.entries.get_mut(id.0 as usize) else {
            return;
        };
        let is_of_file = name == file_name(&entry.path);
        let shown = match &entry.started {
            Started::Never if is_of_file => None,
            Started::Never => Some(name.clone()),
            Started::As(before) if *before == name => return,
            Started::As(before) if before == file_name(&entry.path) => None,
            Started::As(_) => Some(String::new()),
            Started::Variously => return,
        };
        entry.started = match entry.started {
            Started::Never => Started::As(name),
            _ => Started::Variously,
        };
        let Some(shown) = shown else {
            return;
        };
        match self.new_module(id) {
            Some(module) => module.started_as = shown,
            None => self.started.push((id, shown)),
        }
    }

    /// A module that was not handed out yet.
    fn new_module(&mut self, id: ModuleId) -> Option<&mut Module> {
        let handed_out = self.entries.len() - self.new.len();
        let index = (id.0 as usize).checked_sub(handed_out)?;
        self.new.get_mut(index)
    }

    /// The modules that are new since the last call.
    pub(super) fn take_new(&mut self) -> Vec<Module> {
        std::mem::take(&mut self.new)
    }

    /// The modules that have another `started_as` since they were handed out.
    pub(super) fn take_started(&mut self) -> Vec<(ModuleId, String)> {
        std::mem::take(&mut self.started)
    }

    /// The open files.
    pub(super) fn files(&self) -> &OpenFiles {
        &self.files
    }

    /// The open files, when everything is joined.
    pub(super) fn into_files(self) -> OpenFiles {
        self.files
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::open;

    fn module(path: &str) -> Module {
        Module {
            path: path.to_owned(),
            ..Module::default()
        }
    }

    /// Check that an unchanged file stays the same module, that another file under its path is another
    /// module, and that the kernel's numbers tell files apart that can't be opened.
    #[test]
    fn files_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lib.so");
        let at = |inode| Expected {
            device: (0, 1),
            inode,
        };
        let mut modules = Modules::default();
        let mut intern = |inode, path: &Path| {
            let opened = || open::named(path).ok();
            modules.intern(module("/lib.so"), at(inode), opened)
        };
        std::fs::write(&path, "one").unwrap();
        let first = intern(1, &path);
        assert_eq!(intern(1, &path), first);
        // Another file under its path, as after the upgrade of a package.
        let other = dir.path().join("other");
        std::fs::write(&other, "two").unwrap();
        std::fs::rename(&other, &path).unwrap();
        let second = intern(2, &path);
        assert_ne!(second, first);
        // New content in the same file.
        std::thread::sleep(std::time::Duration::from_millis(20));
        std::fs::write(&path, "three").unwrap();
        assert_ne!(intern(2, &path), second);
        let gone = dir.path().join("gone");
        let third = intern(3, &gone);
        assert_eq!(intern(3, &gone), third);
        assert_ne!(intern(4, &gone), third);
        assert!(modules.is_of(
            third,
            FileId {
                device: 9,
                inode: 3
            },
            "/lib.so"
        ));
        assert!(!modules.is_of(
            third,
            FileId {
                device: 9,
                inode: 4
            },
            "/lib.so"
        ));
        let id = open::named(&path).unwrap().identity.file;
        assert!(modules.is_of(second, id, "/other path"));
    }

    /// Check that a program has the name that started it, also if that name comes late, and its file's name if it is
    /// started by several names.
    #[test]
    fn programs_have_the_name_that_started_them() {
        let mut modules = Modules::default();
        let add = |modules: &mut Modules, path: &str, inode| {
            let expected = Expected {
                inode,
                ..Expected::default()
            };
            modules.intern(module(path), expected, || None)
        };
        let early = add(&mut modules, "/bin/one", 1);
        let plain = add(&mut modules, "/bin/two", 2);
        modules.start(early, "first".to_owned());
        modules.start(plain, "two".to_owned());
        let names = |modules: &[Module]| -> Vec<String> {
            modules.iter().map(|it| it.name().to_owned()).collect()
        };
        assert_eq!(names(&modules.take_new()), ["first", "two"]);
        assert_eq!(modules.take_started(), []);
        let late = add(&mut modules, "/bin/three", 3);
        assert_eq!(names(&modules.take_new()), ["three"]);
        modules.start(late, "third".to_owned());
        modules.start(late, "third".to_owned());
        modules.start(early, "another".to_owned());
        modules.start(early, "first".to_owned());
        modules.start(plain, "second".to_owned());
        let changed = [(late, "third".to_owned()), (early, String::new())];
        assert_eq!(modules.take_started(), changed);
    }
}
