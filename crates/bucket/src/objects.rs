//! Reading objects: from the cache, else from the store.
//!
//! 1. Neighbouring chunks of an object are one request, up to [`RUN`] of them.
//! 2. A reader that goes through a file in order gets the next chunks with the one that it asks for, at most half as many as are
//!    right before it in the cache or on their way: a store far away charges for each byte.

use std::io;
use std::ops::Range;

use bytes::Bytes;
use futures_util::StreamExt;

use crate::cache::{CHUNK, Cache, Key};
use crate::client::Client;
use crate::file::Wanted;
use crate::manifest::Stored;
use crate::names::ObjectName;

/// Requests that one read makes at once.
const TOGETHER: usize = 8;
/// The most chunks of one request.
const RUN: u64 = 4;
/// The most chunks that come with one that is asked for: two requests at once, where a store is far away.
const AHEAD: u64 = 2 * RUN - 1;

/// A store behind a cache.
#[derive(Debug)]
pub(crate) struct Objects {
    pub(crate) client: Client,
    pub(crate) cache: Cache,
}

/// A part of a read that is in one chunk.
struct Part {
    key: Key,
    /// Bytes of the object.
    size: u64,
    /// Place in the chunk.
    at: usize,
    to: usize,
    len: usize,
}

fn parts(wanted: &[Wanted]) -> Vec<Part> {
    let mut parts = Vec::new();
    for Wanted {
        to,
        len,
        stored,
        size,
    } in wanted
    {
        let (mut at, mut to, end) = (stored.at, *to, to + len);
        while to < end {
            let in_chunk = (at % CHUNK) as usize;
            let len = (CHUNK as usize - in_chunk).min(end - to);
            parts.push(Part {
                key: (stored.object, at / CHUNK),
                size: *size,
                at: in_chunk,
                to,
                len,
            });
            at += len as u64;
            to += len;
        }
    }
    parts
}

/// Neighbouring chunks of an object, and its bytes.
#[derive(Debug, PartialEq, Eq)]
struct Run {
    object: ObjectName,
    chunks: Range<u64>,
    size: u64,
}

/// Puts neighbours together.
fn runs(mut chunks: Vec<(Key, u64)>) -> Vec<Run> {
    chunks.sort_unstable();
    let mut runs: Vec<Run> = Vec::new();
    for ((object, chunk), size) in chunks {
        match runs.last_mut() {
            Some(run)
                if run.object == object
                    && run.chunks.end == chunk
                    && chunk - run.chunks.start < RUN =>
            {
                run.chunks.end += 1;
            }
            _ => runs.push(Run {
                object,
                chunks: chunk..chunk + 1,
                size,
            }),
        }
    }
    runs
}

/// Chunks that this thread is fetching; others wait for them until this is dropped.
struct Fetching<'a>(&'a Cache, Vec<Key>);

impl Drop for Fetching<'_> {
    fn drop(&mut self) {
        self.0.fetched(&self.1);
    }
}

impl Objects {
    /// Fills the buffer where it is wanted. `before`: the last byte in the file before an object whose byte at the second place comes to the first
    /// one in the buffer. `NotFound`: an object is gone.
    pub(crate) fn fill(
        &self,
        wanted: &[Wanted],
        buf: &mut [u8],
        before: impl Fn(usize, u64) -> Option<Stored>,
    ) -> io::Result<()> {
        let mut left = parts(wanted);
        loop {
            left.retain(|part| {
                !self.cache.read(
                    part.key,
                    &mut buf[part.to..part.to + part.len],
                    part.at as u64,
                )
            });
            if left.is_empty() {
                return Ok(());
            }
            let mut keys: Vec<Key> = left.iter().map(|part| part.key).collect();
            keys.dedup();
            let next = left.last().map_or_else(Vec::new, |part| {
                let before = before(part.to, part.key.1 * CHUNK + part.at as u64);
                self.next_of(part, before)
            });
            let mine = Fetching(&self.cache, self.cache.missing_and(&keys, &next));
            let sized = mine.1.iter().map(|key| {
                let part = left.iter().find(|part| part.key.0 == key.0);
                (*key, part.expect("of an object asked for").size)
            });
            let fetched = self.fetch(sized.collect())?;
            left.retain(|part| {
                let Some((_, bytes)) = fetched.iter().find(|(key, _)| *key == part.key) else {
                    return true;
                };
                let Some(bytes) = bytes.get(part.at..part.at + part.len) else {
                    return true;
                };
                buf[part.to..part.to + part.len].copy_from_slice(bytes);
                false
            });
        }
    }

    /// The chunks after a part that are worth fetching with it. `before`: the last byte in the file before its object.
    fn next_of(&self, part: &Part, before: Option<Stored>) -> Vec<Key> {
        let (object, chunk) = part.key;
        let earlier = before.map(|last| (last.object, last.at / CHUNK));
        let ahead = self.cache.before(&part.key, earlier, 2 * AHEAD as usize) / 2;
        let end = (chunk + 1 + ahead).min(part.size.div_ceil(CHUNK));
        (chunk + 1..end).map(|next| (object, next)).collect()
    }

    /// Has chunks in the cache. Whether none failed, which is of no other consequence.
    pub(crate) fn warm(&self, wanted: &[Wanted]) -> bool {
        let parts = parts(wanted);
        let mut keys: Vec<Key> = parts.iter().map(|part| part.key).collect();
        keys.dedup();
        let mine = Fetching(&self.cache, self.cache.missing(&keys));
        let sized = parts.iter().map(|part| (part.key, part.size));
        let mut sized: Vec<_> = sized.filter(|(key, _)| mine.1.contains(key)).collect();
        sized.dedup();
        let fetched = self.fetch(sized);
        if let Err(e) = &fetched {
            tracing::debug!("{e}");
        }
        fetched.is_ok()
    }

    fn fetch(&self, chunks: Vec<(Key, u64)>) -> io::Result<Vec<(Key, Bytes)>> {
        if chunks.is_empty() {
            return Ok(Vec::new());
        }
        let client = self.client.clone();
        let fetched = self.client.wait(async move {
            let each = runs(chunks).into_iter().map(|run| {
                let client = client.clone();
                async move {
                    let range = run.chunks.start * CHUNK..(run.chunks.end * CHUNK).min(run.size);
                    let bytes = client.get_range(run.object.to_string(), range).await;
                    (run, bytes)
                }
            });
            let all = futures_util::stream::iter(each).buffer_unordered(TOGETHER);
            all.collect::<Vec<_>>().await
        })?;
        let mut whole = Vec::new();
        let mut failed = None;
        for (run, bytes) in fetched {
            match bytes {
                Ok(mut bytes) => {
                    for chunk in run.chunks {
                        let rest = bytes.split_off(bytes.len().min(CHUNK as usize));
                        self.cache.add((run.object, chunk), &bytes);
                        whole.push(((run.object, chunk), std::mem::replace(&mut bytes, rest)));
                    }
                }
                Err(e) => failed = Some(e),
            }
        }
        failed.map_or(Ok(whole), Err)
    }

    /// Adds an object that was just written.
    pub(crate) fn keep(&self, object: ObjectName, parts: &[Bytes]) {
        let mut chunk = Vec::with_capacity(CHUNK as usize);
        let mut number = 0;
        for part in parts {
            let mut rest = &part[..];
            while !rest.is_empty() {
                let take = (CHUNK as usize - chunk.len()).min(rest.len());
                chunk.extend_from_slice(&rest[..take]);
                rest = &rest[take..];
                if chunk.len() == CHUNK as usize {
                    self.cache.add((object, number), &chunk);
                    number += 1;
                    chunk.clear();
                }
            }
        }
        if !chunk.is_empty() {
            self.cache.add((object, number), &chunk);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_one_object_are_one_request() {
        let object = |number| ObjectName::Data { epoch: 1, number };
        let of = |number, chunks: &[u64]| -> Vec<(Key, u64)> {
            chunks.iter().map(|c| ((object(number), *c), 99)).collect()
        };
        // In any order, as parts of a read are.
        let chunks = [of(2, &[4]), of(1, &[7, 0, 1, 2, 3, 4, 5]), of(2, &[3])].concat();
        let found: Vec<_> = runs(chunks)
            .into_iter()
            .map(|run| (run.object, run.chunks))
            .collect();
        let expected = [(1, 0..4), (1, 4..6), (1, 7..8), (2, 3..5)];
        let expected = expected.map(|(number, chunks)| (object(number), chunks));
        assert_eq!(found, expected);
    }
}
