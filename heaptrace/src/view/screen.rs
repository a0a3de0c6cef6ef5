//! Draws a part of the terminal repeatedly in place.
//!
//! Stage: view. Takes lines that fit and have no control characters, and adds the escape sequences that
//! position them. Must not know their content.

use std::fmt::Write as _;
use std::io::{self, Write};

/// Size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Width.
    pub columns: usize,
    /// Height.
    pub rows: usize,
}

/// The part of the terminal that is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// The whole terminal, on the alternate screen; the previous content is restored at the end.
    Full,
    /// The lower half. The output of a traced command on the same terminal scrolls above it, and is not lost.
    Panel,
}

impl Layout {
    /// The number of lines that can be drawn.
    pub fn rows(self, size: Size) -> usize {
        match self {
            Self::Full => size.rows,
            Self::Panel => size.rows / 2,
        }
    }

    /// Prepares the terminal. A panel scrolls the old content up, and keeps the cursor above itself.
    fn enter(self, size: Size) -> String {
        match self {
            Self::Full => "\x1b[?1049h\x1b[?25l".to_owned(),
            Self::Panel => {
                let rows = self.rows(size);
                let above = size.rows - rows;
                // This uses no line feeds, because standard output would send them before the rest. The
                // command's output in between would then be overwritten.
                let down = "\x1bD".repeat(rows);
                format!("{down}\x1b[{rows}A\x1b7\x1b[1;{above}r\x1b8")
            }
        }
    }

    /// Draws the lines over the previous ones, as one string that is written at once. Each line is cleared
    /// behind its text and not before it, to avoid flicker.
    fn frame(self, size: Size, lines: &[String]) -> String {
        let rows = self.rows(size);
        let first = size.rows - rows + 1;
        // Line wrapping is off, so that a wide character can't push a line into the next one.
        let mut out = String::from("\x1b7\x1b[?7l");
        for row in 0..rows {
            let line = lines.get(row).map_or("", String::as_str);
            // Writing to a String can't fail.
            let _ = write!(out, "\x1b[{};1H{line}\x1b[K", first + row);
        }
        out.push_str("\x1b[?7h\x1b8");
        out
    }

    /// Restores a terminal of unknown size whose user is gone. The last image of a panel is cleared.
    pub fn undo(self) -> &'static str {
        match self {
            Self::Full => "\x1b[?7h\x1b[?25h\x1b[?1049l",
            Self::Panel => "\x1b[?7h\x1b7\x1b[r\x1b8\x1b[J",
        }
    }

    /// Restores the terminal's usual state.
    fn leave(self, size: Size) -> String {
        match self {
            Self::Full => "\x1b[?25h\x1b[?1049l".to_owned(),
            Self::Panel => {
                let cleared = self.frame(size, &[]);
                format!("\x1b7\x1b[r\x1b8{cleared}")
            }
        }
    }
}

/// The drawn part of a terminal.
#[derive(Debug)]
pub struct Screen<W: Write> {
    out: W,
    layout: Layout,
    /// The terminal size at which the part was prepared.
    entered: Option<Size>,
}

impl<W: Write> Screen<W> {
    /// A screen that has not changed the terminal yet.
    pub fn new(out: W, layout: Layout) -> Self {
        Self {
            out,
            layout,
            entered: None,
        }
    }

    /// The number of lines that fit.
    pub fn rows(&self, size: Size) -> usize {
        self.layout.rows(size)
    }

    /// Draws the lines in place, without those that don't fit.
    pub fn draw(&mut self, size: Size, lines: &[String]) -> io::Result<()> {
        if self.rows(size) == 0 {
            return Ok(());
        }
        let mut bytes = String::new();
        if self.entered != Some(size) {
            if let Some(before) = self.entered {
                bytes.push_str(&self.layout.leave(before));
            }
            bytes.push_str(&self.layout.enter(size));
            self.entered = Some(size);
        }
        bytes.push_str(&self.layout.frame(size, lines));
        self.out.write_all(bytes.as_bytes())?;
        self.out.flush()
    }

    /// Restores the terminal. The screen can be drawn on again.
    pub fn close(&mut self) -> io::Result<()> {
        if let Some(size) = self.entered.take() {
            self.out.write_all(self.layout.leave(size).as_bytes())?;
            self.out.flush()?;
        }
        Ok(())
    }

    /// The terminal was restored from outside.
    pub fn forget(&mut self) {
        self.entered = None;
    }

    /// The size for which the screen is drawn; `None` if it is not drawn.
    pub fn drawn(&self) -> Option<Size> {
        self.entered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size {
        columns: 80,
        rows: 9,
    };

    fn drawn(layout: Layout, sizes: &[Size]) -> String {
        let mut bytes = Vec::new();
        let mut screen = Screen::new(&mut bytes, layout);
        for &size in sizes {
            screen.draw(size, &["one".into(), "two".into()]).unwrap();
        }
        screen.close().unwrap();
        String::from_utf8(bytes).unwrap()
    }

    /// Check that every terminal mode that is switched on is switched off again, in each layout.
    #[test]
    fn terminal_is_restored() {
        let full = drawn(Layout::Full, &[SIZE]);
        assert!(full.starts_with("\x1b[?1049h\x1b[?25l"));
        assert!(full.ends_with("\x1b[?25h\x1b[?1049l"));
        let panel = drawn(Layout::Panel, &[SIZE]);
        assert!(panel.contains("\x1b[1;5r"));
        let reset = panel.rfind("\x1b[r").unwrap();
        assert!(reset > panel.rfind("\x1b[1;5r").unwrap());
        for (layout, text) in [(Layout::Full, &full), (Layout::Panel, &panel)] {
            let entered = layout.enter(SIZE);
            let modes = ["?1049", "?25", "r"];
            for mode in modes.iter().filter(|it| entered.contains(*it)) {
                assert!(layout.undo().contains(mode), "{layout:?}: {mode}");
            }
            assert_eq!(text.matches("\x1b7").count(), text.matches("\x1b8").count());
            assert_eq!(
                text.matches("\x1b[?7l").count(),
                text.matches("\x1b[?7h").count()
            );
        }
    }

    /// Check that drawing in place never scrolls, and that old text behind a shorter line is cleared.
    #[test]
    fn frames_stay_in_place() {
        let frame = Layout::Full.frame(SIZE, &["one".into()]);
        assert!(!frame.contains('\n'));
        assert!(frame.contains("\x1b[1;1Hone\x1b[K"));
        assert_eq!(frame.matches("\x1b[K").count(), SIZE.rows);
    }

    /// Check that a panel draws only in the lower half, and scrolls exactly its own height.
    #[test]
    fn panel_stays_in_the_lower_half() {
        let frame = Layout::Panel.frame(SIZE, &["one".into()]);
        assert!(frame.contains("\x1b[6;1Hone\x1b[K"));
        assert!(frame.contains("\x1b[9;1H") && !frame.contains("\x1b[5;1H"));
        assert!(
            Layout::Panel
                .enter(SIZE)
                .starts_with("\x1bD\x1bD\x1bD\x1bD\x1b[4A")
        );
    }

    /// Check that the terminal is prepared once, and again after its size changed.
    #[test]
    fn resized_terminals_are_prepared_again() {
        let larger = Size {
            columns: 80,
            rows: 21,
        };
        let text = drawn(Layout::Panel, &[SIZE, SIZE, larger]);
        assert_eq!(text.matches("\x1b[1;5r").count(), 1);
        assert_eq!(text.matches("\x1b[1;11r").count(), 1);
    }

    /// Check that a screen that was never drawn on writes nothing.
    #[test]
    fn undrawn_screens_write_nothing() {
        assert_eq!(drawn(Layout::Full, &[]), "");
    }
}
