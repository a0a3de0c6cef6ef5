//! Marks: numbered moments of a run, and which of them are kept.
//!
//! Stage: join. A block belongs to the last mark before it was allocated. There are never more than [`MOST`] marks: if there are too
//! many, half of them are dropped, first of those that a timer made, and always the one with the least time around it. What was
//! allocated after it counts as allocated after the one before. So a long run keeps marks over its whole length. Knows nothing of blocks.

/// Most marks that are kept.
pub(super) const MOST: usize = 64;

/// What made a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkCause {
    /// `--mark-every`.
    Timer,
    /// SIGUSR2.
    Signal,
    /// A key of the live view.
    Key,
    /// `--when-live-exceeds`.
    Exceeded,
}

/// A moment of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The first is 1. Numbers are not used again.
    pub number: u32,
    /// Nanoseconds since the run began.
    pub at_ns: u64,
    /// What made it.
    pub cause: MarkCause,
}

/// A process, or a control group, whose live memory has exceeded a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exceeded {
    /// The number of the mark that was made then; the mark may have been dropped since.
    pub mark: u32,
    /// Nanoseconds since the run began.
    pub at_ns: u64,
    /// The limit, which doubles each time.
    pub limit_bytes: u64,
    /// The live bytes, an estimate in a sampled run.
    pub live_bytes: u64,
    /// The name and id of the process, or the path of the control group; raw, to be escaped by every output.
    pub name: String,
    /// Whether it is a control group.
    pub is_group: bool,
}

/// The marks of a run.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// In their order, each with its time on the monotonic clock.
    kept: Vec<(Mark, u64)>,
    made: u32,
    is_changed: bool,
}

impl Marks {
    /// Whether another mark fits.
    pub(super) fn has_room(&self) -> bool {
        self.kept.len() < MOST
    }

    /// The number of marks that are kept.
    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    /// The number of the last mark; 0 without marks.
    pub(super) fn last(&self) -> u32 {
        self.kept.last().map_or(0, |(mark, _)| mark.number)
    }

    /// Adds a mark, at a time of both clocks.
    pub(super) fn add(&mut self, cause: MarkCause, at_ns: u64, time: u64) {
        self.made += 1;
        let mark = Mark {
            number: self.made,
            at_ns,
            cause,
        };
        self.kept.push((mark, time));
        self.is_changed = true;
    }

    /// The number of the mark to which a time belongs; 0 before the first.
    pub(super) fn at(&self, time: u64) -> u32 {
        let before = self.kept.iter().rev().find(|(_, begin)| *begin <= time);
        before.map_or(0, |(mark, _)| mark.number)
    }

    /// The mark that is kept for a number: its own, or an earlier one; 0 if there is none.
    pub(super) fn kept(&self, number: u32) -> u32 {
        let later = self.kept.partition_point(|(mark, _)| mark.number <= number);
        let before = later.checked_sub(1).and_then(|at| self.kept.get(at));
        before.map_or(0, |(mark, _)| mark.number)
    }

    /// The numbers of the marks after one.
    pub(super) fn after(&self, number: u32) -> impl Iterator<Item = u32> {
        let numbers = self.kept.iter().map(|(mark, _)| mark.number);
        numbers.filter(move |it| *it > number)
    }

    /// Drops half of the marks; only those of a timer if they are at least half. The first one and the last stay.
    pub(super) fn thin(&mut self) {
        let of_timer = |mark: &Mark| mark.cause == MarkCause::Timer;
        let timed = self.kept.iter().filter(|(mark, _)| of_timer(mark)).count();
        let only_timed = timed * 2 >= self.kept.len();
        let dropped = if only_timed { timed } else { self.kept.len() } / 2;
        for _ in 0..dropped {
            let between = (1..).zip(self.kept.windows(3)).filter_map(|(at, it)| {
                let [(_, before), (mark, _), (_, after)] = it else {
                    return None;
                };
                // A timer's mark goes first, if only those may go.
                let is_kept = only_timed && !of_timer(mark);
                Some((is_kept, after.saturating_sub(*before), at))
            });
            if let Some((.., at)) = between.min() {
                self.kept.remove(at);
            }
        }
        self.is_changed = true;
    }

    /// All marks, if they have changed since the last call.
    pub(super) fn take_changed(&mut self) -> Vec<Mark> {
        if !std::mem::take(&mut self.is_changed) {
            return Vec::new();
        }
        self.kept.iter().map(|(mark, _)| *mark).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the marks of a long run are spread over all of it, however often half of them were dropped.
    #[test]
    fn long_runs_keep_marks_of_all_times() {
        let mut marks = Marks::default();
        for time in 0..2_880 {
            if !marks.has_room() {
                marks.thin();
            }
            marks.add(MarkCause::Timer, time, time);
        }
        let times: Vec<u64> = marks.kept.iter().map(|(_, time)| *time).collect();
        let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
        assert!((32..=MOST).contains(&times.len()), "{times:?}");
        assert!(gaps.max().unwrap() <= 2_880 / 16, "{times:?}");
    }

    /// Check that a time belongs to the last mark before it, and that a dropped mark is replaced by the one before.
    #[test]
    fn dropped_marks_belong_to_those_before() {
        let mut marks = Marks::default();
        assert_eq!((marks.at(5), marks.kept(0), marks.last()), (0, 0, 0));
        for time in [10, 20, 30, 40] {
            marks.add(MarkCause::Timer, time, time);
        }
        marks.add(MarkCause::Key, 45, 45);
        let at = |marks: &Marks| [9, 10, 29, 44, 45, 90].map(|time| marks.at(time));
        assert_eq!(at(&marks), [0, 1, 2, 4, 5, 5]);
        marks.thin();
        // The user's own mark stays.
        assert_eq!(at(&marks), [0, 1, 1, 3, 5, 5]);
        assert_eq!(
            [0, 1, 2, 3, 4, 5, 6].map(|it| marks.kept(it)),
            [0, 1, 1, 3, 3, 5, 5]
        );
        assert_eq!(marks.after(1).collect::<Vec<_>>(), [3, 5]);
        let numbers = |marks: Vec<Mark>| marks.iter().map(|it| it.number).collect::<Vec<_>>();
        assert_eq!(numbers(marks.take_changed()), [1, 3, 5]);
        assert!(marks.take_changed().is_empty());
        marks.add(MarkCause::Signal, 99, 99);
        assert_eq!(numbers(marks.take_changed()), [1, 3, 5, 6]);
    }
}
