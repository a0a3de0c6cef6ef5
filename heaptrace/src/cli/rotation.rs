//! Data files that follow one another, of which the last ones are kept.
//!
//! Part of the command line, no stage of the flow. Every file can be read by itself: it begins with
//! all that was known when the one before it ended, and ends with the names of all addresses.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};

use super::{naming, values};
use crate::create::Destination;
use crate::join::OpenFiles;
use crate::profile::{self, DataFileError, DataFileWriter, Profile, Symbols};

/// When a new file begins, and how many are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// When a new file begins.
    pub limit: Limit,
    /// How many files are kept, with the one that is being written.
    pub keep: u32,
}

/// What a file may have grown to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Bytes, beside those that the file began with.
    Bytes(u64),
    /// Time that is in it.
    Time(Duration),
}

impl Rotation {
    /// How many files are kept, unless the user says otherwise.
    pub const DEFAULT_KEEP: u32 = 5;
    /// The smallest size that is taken.
    const MIN_BYTES: u64 = 4096;

    /// Reads `SIZE|TIME[,KEEP]`: `64MiB`, `1h`, `1h,24`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        const HINT: &str = "write it as 64MiB, 1h or 1h,24";
        let (limit, keep) = match text.split_once(',') {
            Some((limit, keep)) => (limit, Some(keep)),
            None => (text, None),
        };
        if limit.ends_with(|c: char| c.is_ascii_digit()) {
            return Err(format!("`{limit}` has no unit; {HINT}"));
        }
        let limit = match (values::duration(limit), values::size(limit)) {
            // 5m is a time everywhere; a size of that many would be 5M.
            (Ok(time), _) => Limit::Time(time),
            (_, Ok(bytes)) if bytes >= Self::MIN_BYTES => Limit::Bytes(bytes),
            (_, Ok(_)) => return Err("a file must have at least 4KiB".to_owned()),
            _ => return Err(format!("`{limit}` is neither a size nor a time; {HINT}")),
        };
        let keep = match keep.map(str::parse) {
            None => Self::DEFAULT_KEEP,
            Some(Ok(keep @ 2..=10_000)) => keep,
            Some(_) => return Err(format!("keep from 2 to 10000 files; {HINT}")),
        };
        Ok(Self { limit, keep })
    }
}

/// Begins new files where it is time to.
#[derive(Debug)]
pub(super) struct Rotator {
    rotation: Rotation,
    /// How long the run had gone on when the current file began.
    begun_ns: u64,
    /// Bytes that the current file began with.
    base: u64,
    /// Gives names to the file before it. One at a time: while it goes on, no other file begins.
    closing: Option<JoinHandle<Result<Symbols, DataFileError>>>,
    /// The names that are known, so that none is looked up twice.
    symbols: Symbols,
}

impl Rotator {
    pub(super) fn new(rotation: Rotation) -> Self {
        Self {
            rotation,
            begun_ns: 0,
            base: 0,
            closing: None,
            symbols: Symbols::default(),
        }
    }

    /// Makes room for the first file of a run: those of earlier runs are not lost to it.
    pub(super) fn prepare(&self, destination: &Destination, path: &Path) -> anyhow::Result<()> {
        self.shift(destination, path)
    }

    /// Begins a new file, if it is time to; the older one is finished in the background.
    pub(super) fn turn(
        &mut self,
        destination: &Destination,
        path: &Path,
        writer: &mut DataFileWriter,
        profile: &Profile,
        files: &OpenFiles,
    ) -> anyhow::Result<()> {
        let is_due = match self.rotation.limit {
            Limit::Bytes(bytes) => writer.written().saturating_sub(self.base) >= bytes,
            Limit::Time(time) => {
                u128::from(profile.duration_ns.saturating_sub(self.begun_ns)) >= time.as_nanos()
            }
        };
        if !is_due || self.closing.as_ref().is_some_and(|it| !it.is_finished()) {
            return Ok(());
        }
        self.wait()?;
        self.shift(destination, path)?;
        let mut next = DataFileWriter::create_at(destination, path, &profile.info)?;
        next.update(&profile.to_update())?;
        self.base = next.written();
        self.begun_ns = profile.duration_ns;
        let mut done = std::mem::replace(writer, next);
        done.moved_to(numbered(path.as_os_str(), 1).into());
        let (profile, files) = (profile.clone(), files.clone());
        let known = std::mem::take(&mut self.symbols);
        self.closing = Some(std::thread::spawn(move || {
            let symbols = naming::complete(known, &profile, &files);
            done.symbols(&symbols)?;
            done.finish(profile.duration_ns)?;
            Ok(symbols)
        }));
        Ok(())
    }

    /// Waits until the older file is whole.
    pub(super) fn wait(&mut self) -> anyhow::Result<()> {
        if let Some(closing) = self.closing.take() {
            let closed = closing.join();
            let closed = closed.map_err(|_| anyhow!("finishing an older data file failed"))?;
            self.symbols = closed?;
        }
        Ok(())
    }

    /// Gives every file the number that follows its own; the last one goes.
    fn shift(&self, destination: &Destination, path: &Path) -> anyhow::Result<()> {
        let Some(name) = destination.name() else {
            bail!(
                "--rotate needs a file of its own, and {} is none",
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
            // An empty one comes from a writer that was killed at once.
            if !found.is_replaceable || found.len > 0 && !is_data_file(destination, name) {
                bail!(
                    "{} is in the way, and no data file of yours; move it, or name another file with -o",
                    shown(name)
                );
            }
            there.push(name);
        }
        // From the last one, so that none is ever without a name; a gap ends the row.
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

/// The name of the file before `number` others.
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

    use super::*;
    use crate::join::{Location, Process, ProcessId, Update};
    use crate::profile::{RunEnd, RunInfo, read};

    fn update(n: u32) -> Update {
        Update {
            elapsed_ns: u64::from(n + 1) * 1_000_000_000,
            locations: vec![Location {
                module: None,
                address: n.into(),
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

    /// What a recording does with an update. Files are always done in time: it is these that are looked at.
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
        rotator
            .turn(&to(path), path, writer, profile, &OpenFiles::default())
            .unwrap();
    }

    /// Check sizes and times, that what could be either is asked about, and how many are kept.
    #[test]
    fn limits() {
        let rotation = |limit, keep| Ok(Rotation { limit, keep });
        let seconds = |n| Limit::Time(Duration::from_secs(n));
        assert_eq!(Rotation::parse("1h"), rotation(seconds(3600), 5));
        assert_eq!(Rotation::parse("5m,24"), rotation(seconds(300), 24));
        assert_eq!(Rotation::parse("5M"), rotation(Limit::Bytes(5 << 20), 5));
        assert_eq!(
            Rotation::parse("64MiB,2"),
            rotation(Limit::Bytes(64 << 20), 2)
        );
        for (text, reason) in [
            ("100", "no unit"),
            ("", "neither"),
            ("soon", "neither"),
            ("1h,", "keep from"),
            ("1h,1", "keep from"),
            ("1h,x", "keep from"),
            ("1K", "at least"),
            ("0s", "neither"),
        ] {
            let error = Rotation::parse(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    /// Check that each file has all that the ones before it had, that as many are kept as asked for,
    /// and that every one of them was ended in order, with names.
    #[test]
    fn files_follow_one_another() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.data");
        let mut rotator = Rotator::new(Rotation {
            limit: Limit::Time(Duration::from_secs(2)),
            keep: 3,
        });
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

    /// Check that a size counts what came into a file, not what it began with: otherwise there were
    /// a new file at every update some day.
    #[test]
    fn sizes_count_what_is_new() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.data");
        let mut rotator = Rotator::new(Rotation {
            limit: Limit::Bytes(100),
            keep: 2,
        });
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

    /// Check that the files of an earlier run move on, that what is no data file is left alone, and
    /// that a gap in the numbers costs nothing.
    #[test]
    fn what_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.data");
        let rotator = Rotator::new(Rotation::parse("1h,3").unwrap());
        rotator.prepare(&to(&path), &path).unwrap();
        drop(DataFileWriter::create(&path, &RunInfo::exact("--all")).unwrap());
        fs::write(numbered(&path, 2), "precious").unwrap();
        // The first of them takes the gap, and so stops in front of what is none.
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
        assert!(error.to_string().contains("a file of its own"), "{error}");
    }
}
