//! Allocators: which functions of which file are to be probed.
//!
//! Stage: probes. Finds glibc among the files that a process has mapped, or that a command is going
//! to map. Reads ELF files of traced processes, which may be anything; knows nothing of attaching.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use object::{Object as _, ObjectSegment as _, ObjectSymbol as _, ReadRef};
use thiserror::Error;

use super::maps::{self, Mapping};
use super::placement::{Needs, Placement, Placer};

/// A file is the same file whatever its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    /// Device.
    pub device: u64,
    /// Inode.
    pub inode: u64,
}

impl FileId {
    /// Identity of an open file.
    pub fn of(file: &File) -> std::io::Result<Self> {
        let meta = file.metadata()?;
        Ok(Self {
            device: meta.dev(),
            inode: meta.ino(),
        })
    }
}

/// The kernel programs that go to a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hook {
    /// Name of the function.
    pub function: &'static str,
    /// Program at its entry.
    pub entry: &'static str,
    /// Program at its return, if it has one.
    pub on_return: Option<&'static str>,
}

const fn allocates(function: &'static str, entry: &'static str) -> Hook {
    Hook {
        function,
        entry,
        on_return: Some("alloc_return"),
    }
}

/// The functions of the malloc family, with what is to be known of them.
///
/// `reallocarray` is not here: it calls `realloc`, and would count twice.
pub const MALLOC_FAMILY: &[Hook] = &[
    allocates("malloc", "malloc_entry"),
    allocates("calloc", "calloc_entry"),
    allocates("realloc", "realloc_entry"),
    Hook {
        function: "free",
        entry: "free_entry",
        on_return: None,
    },
    allocates("posix_memalign", "posix_memalign_entry"),
    allocates("aligned_alloc", "aligned_entry"),
    allocates("memalign", "aligned_entry"),
    allocates("valloc", "malloc_entry"),
    allocates("pvalloc", "malloc_entry"),
];

/// A place to probe: one address, under all the names that it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Offset in the file of the function's entry.
    pub offset: u64,
    /// Bytes of its code, where the symbol says.
    pub size: Option<u64>,
    /// How far the file's code reaches before and behind it.
    pub reach: (u64, u64),
    /// The programs.
    pub hook: Hook,
    /// Names of the functions there.
    pub names: Vec<&'static str>,
}

/// An allocator in a file.
#[derive(Debug)]
pub struct Allocator {
    /// Path for reports, as the process sees it.
    pub path: String,
    /// What it is.
    pub kind: &'static str,
    /// The file, held open: probes go to this very file, whatever becomes of its path.
    pub file: File,
    /// Its identity.
    pub id: FileId,
    /// Where to probe it.
    pub places: Vec<Place>,
}

impl Allocator {
    /// Where each probe really goes, in the order of the places.
    pub fn placements(&self) -> Vec<Placement> {
        let placer = Placer::new(&self.file);
        let place = |place: &Place| {
            let others = self.places.iter().map(|other| other.offset);
            let needs = Needs::of(place.hook.entry);
            placer.place(place.offset, place.size, place.reach.1, others, needs)
        };
        self.places.iter().map(place).collect()
    }

    /// Names of all functions that are probed, with the offset and the instruction that each probe is on.
    pub fn placed_names(&self) -> Vec<String> {
        let placed = self.places.iter().zip(self.placements());
        placed
            .map(|(place, placement)| format!("{}{placement}", place.names.join("/")))
            .collect()
    }

    /// Names of all functions that are probed.
    pub fn hook_names(&self) -> Vec<String> {
        self.places
            .iter()
            .flat_map(|place| place.names.iter().map(|name| (*name).to_owned()))
            .collect()
    }
}

/// Why a file is not an allocator that can be probed.
#[derive(Debug, Error)]
pub enum AllocatorError {
    /// The file can't be read.
    #[error("{path}: {source}")]
    Unreadable {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not an ELF file that can be understood.
    #[error("{path}: {source}")]
    Elf {
        /// The file.
        path: String,
        /// Why.
        source: object::Error,
    },
    /// An ELF file, but not glibc's C library.
    #[error("{path} is not glibc's C library")]
    NotGlibc {
        /// The file.
        path: String,
    },
}

/// Reads a file that may be glibc's C library.
pub fn read_glibc(file: File, path: String) -> Result<Allocator, AllocatorError> {
    read(file, path, true)
}

/// Reads a file whose functions have the names of the malloc family, whatever it is.
pub fn read_named(file: File, path: String) -> Result<Allocator, AllocatorError> {
    read(file, path, false)
}

fn read(file: File, path: String, only_glibc: bool) -> Result<Allocator, AllocatorError> {
    let unreadable = |path: &str, source| AllocatorError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let id = FileId::of(&file).map_err(|error| unreadable(&path, error))?;
    let cache = object::ReadCache::new(&file);
    let elf = |source| AllocatorError::Elf {
        path: path.clone(),
        source,
    };
    let image = object::File::parse(&cache).map_err(elf)?;
    let is_glibc = image
        .dynamic_symbols()
        .any(|symbol| symbol.is_definition() && symbol.name() == Ok("gnu_get_libc_version"));
    if only_glibc && !is_glibc {
        return Err(AllocatorError::NotGlibc { path });
    }
    let places = places(&image);
    drop(image);
    drop(cache);
    Ok(Allocator {
        path,
        kind: if is_glibc { "glibc" } else { "by name" },
        file,
        id,
        places,
    })
}

/// Where the functions of the malloc family stand, one place per address.
fn places<'a, R: ReadRef<'a>>(image: &object::File<'a, R>) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::new();
    for hook in MALLOC_FAMILY {
        let found = image
            .dynamic_symbols()
            .chain(image.symbols())
            .filter(|symbol| symbol.is_definition() && symbol.name() == Ok(hook.function))
            .find_map(|symbol| Some((locate(image, symbol.address())?, symbol.size())));
        let Some(((offset, reach), size)) = found else {
            continue;
        };
        match places.iter_mut().find(|place| place.offset == offset) {
            Some(place) => place.names.push(hook.function),
            None => places.push(Place {
                offset,
                size: (size > 0).then_some(size),
                reach,
                hook: *hook,
                names: vec![hook.function],
            }),
        }
    }
    places
}

/// Offset in the file of an address, and how far its segment reaches before and behind it.
fn locate<'a, R: ReadRef<'a>>(
    image: &object::File<'a, R>,
    address: u64,
) -> Option<(u64, (u64, u64))> {
    image.segments().find_map(|segment| {
        let within = address.checked_sub(segment.address())?;
        let (start, size) = segment.file_range();
        let behind = size.checked_sub(within)?;
        (behind > 0).then_some((start.checked_add(within)?, (within, behind)))
    })
}

/// Whether a path may be that of glibc's C library.
pub fn may_be_glibc(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.starts_with("libc.so") || name.starts_with("libc-2.")
}

/// The glibcs that a process has mapped.
pub fn of_process(pid: u32) -> std::io::Result<Vec<Allocator>> {
    let thread = maps::living_thread(pid);
    let text = maps::read(thread)?;
    let mut seen = HashSet::new();
    let candidates = maps::parse(&text)
        .filter(|mapping| mapping.executable && may_be_glibc(&mapping.path))
        .filter(|mapping| seen.insert((mapping.device, mapping.inode)));
    Ok(candidates
        .filter_map(|mapping| match open_mapped(thread, &mapping) {
            Ok(file) => match read_glibc(file, mapping.path) {
                Ok(allocator) => Some(allocator),
                Err(error) => {
                    tracing::warn!("process {pid}: {error}");
                    None
                }
            },
            Err(error) => {
                tracing::debug!("process {pid}: {}: {error}", mapping.path);
                None
            }
        })
        .collect())
}

/// Opens the file behind a mapping: the very inode, also where its path is gone or means another
/// file in another root.
pub fn open_mapped(pid: u32, mapping: &Mapping) -> std::io::Result<File> {
    File::open(format!(
        "/proc/{pid}/map_files/{:x}-{:x}",
        mapping.start, mapping.end
    ))
}

/// The glibcs that a command may map once it runs: there is none to look at before.
///
/// Beside the dynamic loader that it names, in the folders that its user names, and in the
/// system's own.
pub fn of_command(program: &Path) -> Vec<Allocator> {
    let mut folders: Vec<PathBuf> = Vec::new();
    if let Some(paths) = std::env::var_os("LD_LIBRARY_PATH") {
        folders.extend(std::env::split_paths(&paths));
    }
    if let Some(loader) = image_of(program).and_then(|image| image.loader)
        && let Ok(real) = fs::canonicalize(loader)
    {
        folders.extend(real.parent().map(Path::to_owned));
    }
    let arch = std::env::consts::ARCH;
    folders.extend([
        format!("/lib/{arch}-linux-gnu").into(),
        "/lib64".into(),
        "/usr/lib64".into(),
        "/usr/lib".into(),
    ]);
    let mut seen = HashSet::new();
    folders
        .iter()
        .filter_map(|folder| {
            let path = fs::canonicalize(folder.join("libc.so.6")).ok()?;
            let allocator = read_glibc(File::open(&path).ok()?, path.display().to_string());
            allocator.ok().filter(|found| seen.insert(found.id))
        })
        .collect()
}

/// What runs when a program is started.
#[derive(Debug)]
pub struct Image {
    /// The program, or the interpreter of a script.
    pub program: PathBuf,
    /// The dynamic loader that it asks for.
    pub loader: Option<PathBuf>,
}

/// What runs when a program is started.
pub fn image_of(program: &Path) -> Option<Image> {
    const MAX_SCRIPTS: usize = 4;
    let mut path = program.to_owned();
    for _ in 0..MAX_SCRIPTS {
        let file = File::open(&path).ok()?;
        let mut head = Vec::new();
        (&file).take(256).read_to_end(&mut head).ok()?;
        let Some(line) = head.strip_prefix(b"#!") else {
            let cache = object::ReadCache::new(&file);
            let loader = interpreter(&cache);
            return Some(Image {
                program: path,
                loader,
            });
        };
        let line = String::from_utf8_lossy(line.split(|byte| *byte == b'\n').next()?).into_owned();
        path = line.split_whitespace().next()?.into();
    }
    None
}

fn interpreter<'a, R: ReadRef<'a>>(data: R) -> Option<PathBuf> {
    use object::read::elf::{FileHeader as _, ProgramHeader as _};
    let header = object::elf::FileHeader64::<object::Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, data).ok()?;
    let name = segments
        .iter()
        .find_map(|segment| segment.interpreter(endian, data).ok().flatten())?;
    Some(String::from_utf8_lossy(name).into_owned().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that this machine's own glibc is recognised, with every function of the family, and
    /// with functions that share an address at one place.
    #[test]
    fn reads_the_running_glibc() {
        let found = of_process(std::process::id()).unwrap();
        assert_eq!(found.len(), 1, "one C library in this process");
        let names = found[0].hook_names();
        for hook in MALLOC_FAMILY {
            assert!(names.iter().any(|name| name == hook.function), "{names:?}");
        }
        let mut offsets: Vec<_> = found[0].places.iter().map(|place| place.offset).collect();
        offsets.dedup();
        assert_eq!(offsets.len(), found[0].places.len());
    }

    /// Check that the C library a command will map is found before it runs.
    #[test]
    fn finds_the_glibc_of_a_command() {
        let own = of_process(std::process::id()).unwrap();
        let found = of_command(Path::new("/bin/sh"));
        assert!(found.iter().any(|allocator| allocator.id == own[0].id));
    }

    /// Check that an ELF file that is no C library, and a file that is no ELF file, are refused.
    #[test]
    fn refuses_other_files() {
        let open = |path: &str| read_glibc(File::open(path).unwrap(), path.to_owned());
        assert!(matches!(
            open("/proc/self/exe"),
            Err(AllocatorError::NotGlibc { .. })
        ));
        assert!(matches!(
            open("/etc/passwd"),
            Err(AllocatorError::Elf { .. })
        ));
    }
}
