//! Splits a message into parts of bounded size, so that no chunk is too large to be read.
//!
//! Stage: profile.

use prost::Message;

/// A message that can have several parts.
pub(super) trait Part: Message + Default {
    /// Marks that another part follows.
    fn set_more(&mut self);
}

/// The parts of a message, while they are filled.
pub(super) struct Parts<P> {
    full: Vec<P>,
    open: P,
    /// Bytes of the open part.
    size: usize,
    max_size: usize,
}

impl<P: Part> Parts<P> {
    pub(super) fn new(max_size: usize) -> Self {
        Self {
            full: Vec::new(),
            open: P::default(),
            size: 0,
            max_size,
        }
    }

    /// Adds a record to the list that `list` selects, in a new part if this one is full.
    pub(super) fn add<T: Message>(&mut self, record: T, list: impl FnOnce(&mut P) -> &mut Vec<T>) {
        let size = record.encoded_len() + 6;
        self.reserve(size);
        list(&mut self.open).push(record);
    }

    /// Adds a text to the list that `list` selects, in a new part if this one is full.
    pub(super) fn add_text(&mut self, text: &str, list: impl FnOnce(&mut P) -> &mut Vec<String>) {
        self.reserve(text.len() + 6);
        list(&mut self.open).push(text.to_owned());
    }

    fn reserve(&mut self, size: usize) {
        if self.size > 0 && self.size + size > self.max_size {
            let mut full = std::mem::take(&mut self.open);
            full.set_more();
            self.full.push(full);
            self.size = 0;
        }
        self.size += size;
    }

    pub(super) fn all(mut self) -> Vec<P> {
        self.full.push(self.open);
        self.full
    }
}
