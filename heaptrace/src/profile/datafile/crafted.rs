//! Data files out of any messages, for tests.
//!
//! Stage: profile.

use prost::Message as _;

use super::chunk;
use super::format::{MAGIC, VERSION};
use crate::profile::model::RunInfo;
use crate::profile::wire::Start;

/// A data file of these update messages and symbol messages, which may be any bytes.
pub(crate) fn crafted(updates: &[Vec<u8>], symbols: &[Vec<u8>]) -> Vec<u8> {
    let start = Start::from(&RunInfo::exact("--all"));
    let mut file = MAGIC.to_vec();
    file.extend(VERSION.to_le_bytes());
    file.extend(chunk::encode(chunk::Kind::Start, &start.encode_to_vec()).unwrap());
    for (kind, messages) in [
        (chunk::Kind::Update, updates),
        (chunk::Kind::Symbols, symbols),
    ] {
        // Equal messages are compressed once.
        for same in messages.chunk_by(|a, b| a == b) {
            let chunk = chunk::encode(kind, &same[0]).unwrap();
            file.extend(chunk.repeat(same.len()));
        }
    }
    file
}
