//! Writes data files one after the other, and keeps the last ones.
//!
//! Part of the command line. Every file can be read by itself: it begins with everything that was known when
//! the file before it ended, and ends with the names of all addresses.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use anyhow::{Context as _, anyhow, bail};

use super::naming;
use super::rotation::{Limit, Rotation};
use crate::create::Destination;
use crate::join::{BlockChanges, OpenFiles, Update};
use crate::profile::{self, DataFileError, DataFileWriter, Profile, Symbols};
use crate::symbolize::DebugSources;

/// Begins new data files when they are due.
#[derive(Debug)]
pub(super) struct Rotator {
    rotation: Rotation,
    /// The time of the run at which the current file began.
    begun_ns: u64,
    /// Bytes that the current file began with.
    initial_bytes: u64,
    /// The thread that writes the names of the previous file. While it runs, no other file begins.
    closing: Option<JoinHandle<Result<Symbols, DataFileError>>>,
    /// The names that are cached, so that none is looked up twice.
    symbols: Symbols,
    /// Folders of debug files.
    debug_dirs: Vec<PathBuf>,
}

impl Rotator {
    pub(super) fn new(rotation: Rotation, debug_dirs: &[PathBuf]) -> Self {
        Self {
            rotation,
            begun_ns: 0,
            initial_bytes: 0,
            closing: None,
            symbols: Symbols::default(),
            debug_dirs: debug_dirs.to_vec(),
        }
    }

    /// Renames the files of earlier runs, so that the first file of this run doesn't replace one.
    pub(super) fn prepare(&self, destination: &Destination, path: &Path) -> anyhow::Result<()> {
        self.shift(destination, path)
    }

    /// Whether a new file is due at a time of the run.
    pub(super) fn is_due(&self, writer: &DataFileWriter, elapsed_ns: u64) -> bool {
        let is_over = match self.rotation.limit {
            Limit::Bytes(bytes) => writer.written().saturating_sub(self.initial_bytes) >= bytes,
            Limit::Time(time) => {
                u128::from(elapsed_ns.saturating_sub(self.begun_ns)) >= time.as_nanos()
            }
        };
        is_over && self.closing.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Begins a new file, with these blocks that are live. The previous file is finished on a thread.
    pub(super) fn rotate(
        &mut self,
        destination: &Destination,
        path: &Path,
        writer: &mut DataFileWriter,
        profile: &Profile,
        files: &OpenFiles,
        blocks: Vec<BlockChanges>,
    ) -> anyhow::Result<()> {
        self.wait()?;
        self.shift(destination, path)?;
        let mut next = DataFileWriter::create_at(destination, path, &profile.info)?;
        next.update(&Update {
            blocks,
            ..profile.to_update()
        })?;
        self.initial_bytes = next.written();
        self.begun_ns = profile.duration_ns;
        let mut done = std::mem::replace(writer, next);
        // Looking up names takes time and memory.
        done.forget_sites();
        done.moved_to(numbered(path.as_os_str(), 1).into());
        let (profile, files) = (profile.clone(), files.clone());
        let known = std::mem::take(&mut self.symbols);
        let sources = DebugSources::in_folders(&self.debug_dirs);
        self.closing = Some(std::thread::spawn(move || {
            let symbols = naming::complete(known, &profile, &files, sources);
            done.symbols(&symbols)?;
            done.finish(profile.duration_ns)?;
            Ok(symbols)
        }));
        Ok(())
    }

    /// Waits until the previous file is complete.
    pub(super) fn wait(&mut self) -> anyhow::Result<()> {
        if let Some(closing) = self.closing.take() {
            let closed = closing.join();
            let closed = closed
                .map_err(|_| anyhow!("can't finish the previous data file: its thread failed"))?;
            self.symbols = closed?;
        }
        Ok(())
    }

    /// Renames every file to the next number; the last one is replaced.
    fn shift(&self, destination: &Destination, path: &Path) -> anyhow::Result<()> {
        let Some(name) = destination.name() else {
            bail!(
                "--rotate needs a regular file, and {} is none; name another file with -o",
                path.display()
            )
        };
        let shown = |name: &OsStr| path.with_file_name(name).display().to_string();
        let names: Vec<OsString> = (0..self.rotation.keep).map(|n| numbered(name, n)).collect();
        let mut there = Vec::new();
        for name in &names {
            let Some(found) = destination.entry(name).with_context(|| shown(name))? else {
                break;
            };
            // An empty file comes from a writer that was killed at once.
            if !found.is_replaceable || found.len > 0 && !is_data_file(destination, name) {
                bail!(
                    "{} is in the way, and is no data file of yours; move it, or name another file with -o",
                    shown(name)
                );
            }
            there.push(name);
        }
        // From the last file on, so that every file has a name at any time. Files after a gap stay.
        let moves = there.iter().zip(names.get(1..).unwrap_or_default());
        for (from, to) in moves.rev() {
            destination
                .rename(from, to)
                .with_context(|| format!("can't rename {} to {}", shown(from), shown(to)))?;
        }
        Ok(())
    }
}

fn is_data_file(destination: &Destination, name: &OsStr) -> bool {
    destination.read(name).is_ok_and(profile::is_data_file)
}

/// The name of the file with a number; the current file is number 0.
fn numbered(name: &OsStr, number: u32) -> OsString {
    let mut name = name.to_owned();
    if number > 0 {
        name.push(format!(".{number}"));
    }
    name
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;
    use std::time::Duration;

    use super::*;
    use crate::join::{BornBlock, FreedBlock, HowFreed, Location, MemoryMap, Process, ProcessId};
    use crate::join::{Completeness, Stack, StackId};
    use crate::profile::{BlockList, ReadOptions, RunEnd, RunInfo, WantedBlocks, read};

    fn update(n: u32) -> Update {
        Update {
            elapsed_ns: u64::from(n + 1) * 1_000_000_000,
            locations: vec![Location {
                module: None,
                address: n.into(),
                function: None,
            }],
            processes: vec![(ProcessId(n), Process::default())],
            ..Update::default()
        }
    }

    fn to(path: &Path) -> Destination {
        Destination::open(path).unwrap()
    }

    fn numbered(path: &Path, number: u32) -> PathBuf {
        super::numbered(path.as_os_str(), number).into()
    }

    fn rotate(
        rotator: &mut Rotator,
        path: &Path,
        writer: &mut DataFileWriter,
        profile: &Profile,
        blocks: Vec<BlockChanges>,
    ) {
        let files = OpenFiles::default();
        rotator
            .rotate(&to(path), path, writer, profile, &files, blocks)
            .unwrap();
    }

    /// Does what a recording does with an update. Waits for the previous file, so that files are complete
    /// when checked.
    fn step(
        rotator: &mut Rotator,
        path: &Path,
        writer: &mut DataFileWriter,
        profile: &mut Profile,
        update: Update,
    ) {
        writer.update(&update).unwrap();
        profile.fold(update).unwrap();
        rotator.wait().unwrap();
        if rotator.is_due(writer, profile.duration_ns) {
            rotate(rotator, path, writer, profile, Vec::new());
        }
    }

    /// Check that each file contains everything of the files before it, that the right number of files is
    /// kept, and that all previous files have an orderly end and names.
    #[test]
    fn each_file_is_complete() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.data");
        let mut rotator = Rotator::new(
            Rotation {
                limit: Limit::Time(Duration::from_secs(2)),
                keep: 3,
            },
            &[],
        );
        rotator.prepare(&to(&path), &path).unwrap();
        let mut writer = DataFileWriter::create(&path, &RunInfo::exact("--all")).unwrap();
        let mut profile = Profile::new(RunInfo::exact("--all"));
        for n in 0..9 {
            step(&mut rotator, &path, &mut writer, &mut profile, update(n));
        }
        rotator.wait().unwrap();
        let found = |number| read(&numbered(&path, number)).unwrap();
        assert_eq!(found(0).profile, profile);
        assert_eq!(found(0).profile.end, RunEnd::CutOff);
        for (number, locations) in [(1, 8), (2, 6)] {
            let recording = found(number);
            assert_eq!(recording.profile.end, RunEnd::Orderly);
            assert_eq!(recording.profile.locations.len(), locations);
            assert_eq!(recording.profile.processes.len(), locations);
            assert_eq!(recording.symbols.unwrap().frames.len(), locations);
            assert!(recording.warnings.is_empty());
        }
        assert!(!numbered(&path, 3).exists());
    }

    /// Check that a size counts only the bytes after a file's beginning. Otherwise each update would begin a
    /// new file one day.
    #[test]
    fn sizes_count_new_bytes_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.data");
        let mut rotator = Rotator::new(
            Rotation {
                limit: Limit::Bytes(100),
                keep: 2,
            },
            &[],
        );
        let mut writer = DataFileWriter::create(&path, &RunInfo::exact("--all")).unwrap();
        let mut profile = Profile::new(RunInfo::exact("--all"));
        let mut rotated = Vec::new();
        for n in 0..30 {
            step(&mut rotator, &path, &mut writer, &mut profile, update(n));
            if rotator.begun_ns == profile.duration_ns {
                rotated.push(n);
            }
        }
        rotator.wait().unwrap();
        assert!(rotated.len() > 3, "{rotated:?}");
        assert!(
            rotated.windows(2).all(|pair| pair[1] > pair[0] + 1),
            "{rotated:?}"
        );
    }

    /// Check that a file of a run that keeps each block knows the blocks that were live at its beginning, with the memory of that moment,
    /// and when it began; and that it knows their frees.
    #[test]
    fn each_file_begins_with_live_blocks() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.data");
        let mut rotator = Rotator::new(Rotation::parse("1s,3").unwrap(), &[]);
        let mut writer = DataFileWriter::create(&path, &RunInfo::exact("--all")).unwrap();
        let mut profile = Profile::new(RunInfo::exact("--all"));
        let block = |id: u64| BornBlock {
            id,
            address: id << 12,
            size: 100,
            stack: StackId(0),
            thread: 1,
            born_ns: id,
            mean: 0,
            is_reallocated: false,
        };
        let freed = |id| FreedBlock {
            id,
            how: HowFreed::Freed,
            freed_ns: 9,
            thread: 1,
        };
        let changes = |born: &[u64], gone: &[u64], at_ns| BlockChanges {
            at_ns,
            born: born.iter().map(|id| block(*id)).collect(),
            freed: gone.iter().map(|id| freed(*id)).collect(),
            ..BlockChanges::default()
        };
        let mut write = |writer: &mut DataFileWriter, n, blocks| {
            let update = Update {
                blocks: vec![blocks],
                stacks: vec![Stack {
                    locations: Vec::new(),
                    completeness: Completeness::Complete,
                }],
                ..update(n)
            };
            writer.update(&update).unwrap();
            profile.fold(update).unwrap();
            profile.clone()
        };
        let profile = write(&mut writer, 0, changes(&[1, 2, 3], &[1], 1));
        let whole = BlockChanges {
            is_whole: true,
            memory: Some(MemoryMap::default()),
            ..changes(&[2, 3], &[], 1)
        };
        rotate(&mut rotator, &path, &mut writer, &profile, vec![whole]);
        write(&mut writer, 1, changes(&[4], &[1, 2], 2));
        rotator.wait().unwrap();
        let list = |path: &Path| -> BlockList {
            let wanted = WantedBlocks::at(&[1 << 12, 2 << 12]).with_memory();
            let file = profile::open(path).unwrap().with_blocks(wanted);
            file.read(ReadOptions::default()).unwrap().blocks.unwrap()
        };
        let (first, second) = (list(&numbered(&path, 1)), list(&path));
        assert_eq!((first.began_ns, second.began_ns), (None, Some(1)));
        let ids = |blocks: &[BornBlock]| blocks.iter().map(|it| it.id).collect::<Vec<_>>();
        assert_eq!(ids(&first.processes[0].blocks), [2, 3]);
        let second = &second.processes[0];
        assert_eq!(ids(&second.blocks), [3, 4]);
        assert_eq!(second.freed.keys().collect::<Vec<_>>(), [&(2 << 12)]);
        let memory = second.memory.as_ref().unwrap();
        assert_eq!(ids(&memory.blocks), [2, 3]);
    }

    /// Check that the files of an earlier run are renamed, that a file that is no data file is not, and that
    /// a gap in the numbers costs no file.
    #[test]
    fn existing_files_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.data");
        let rotator = Rotator::new(Rotation::parse("1h,3").unwrap(), &[]);
        rotator.prepare(&to(&path), &path).unwrap();
        drop(DataFileWriter::create(&path, &RunInfo::exact("--all")).unwrap());
        fs::write(numbered(&path, 2), "precious").unwrap();
        // The first file takes the gap, so the file behind it is not renamed.
        rotator.prepare(&to(&path), &path).unwrap();
        assert!(
            !path.exists() && profile::is_data_file(fs::File::open(numbered(&path, 1)).unwrap())
        );

        drop(DataFileWriter::create(&path, &RunInfo::exact("--all")).unwrap());
        let error = rotator.prepare(&to(&path), &path).unwrap_err();
        assert!(
            error.to_string().contains("x.data.2 is in the way"),
            "{error}"
        );
        assert_eq!(fs::read(numbered(&path, 2)).unwrap(), b"precious");
        assert!(path.exists() && numbered(&path, 1).exists());

        let null = Path::new("/dev/null");
        let error = rotator.prepare(&to(null), null).unwrap_err();
        assert!(error.to_string().contains("a regular file"), "{error}");
    }
}
