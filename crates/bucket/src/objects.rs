//! Reading objects: from the cache, else from the store, chunk by chunk.

use std::io;

use bytes::Bytes;
use futures_util::StreamExt;

use crate::cache::{CHUNK, Cache, Key};
use crate::client::Client;
use crate::file::Wanted;
use crate::names::ObjectName;

/// Chunks that one read fetches at once.
const TOGETHER: usize = 8;

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

/// Chunks that this thread is fetching; others wait for them until this is dropped.
struct Fetching<'a>(&'a Cache, Vec<Key>);

impl Drop for Fetching<'_> {
    fn drop(&mut self) {
        self.0.fetched(&self.1);
    }
}

impl Objects {
    /// Fills the buffer where it is wanted. `NotFound`: an object is gone.
    pub(crate) fn fill(&self, wanted: &[Wanted], buf: &mut [u8]) -> io::Result<()> {
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
            let mine = Fetching(&self.cache, self.cache.missing(&keys));
            let sized = mine.1.iter().map(|key| {
                let part = left.iter().find(|part| part.key == *key);
                (*key, part.expect("asked for").size)
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

    /// Has chunks in the cache soon. What fails is of no consequence.
    pub(crate) fn warm(&self, wanted: &[Wanted]) {
        let parts = parts(wanted);
        let mut keys: Vec<Key> = parts.iter().map(|part| part.key).collect();
        keys.dedup();
        let mine = Fetching(&self.cache, self.cache.missing(&keys));
        let sized = parts.iter().map(|part| (part.key, part.size));
        let mut sized: Vec<_> = sized.filter(|(key, _)| mine.1.contains(key)).collect();
        sized.dedup();
        if let Err(e) = self.fetch(sized) {
            tracing::debug!("{e}");
        }
    }

    fn fetch(&self, chunks: Vec<(Key, u64)>) -> io::Result<Vec<(Key, Bytes)>> {
        if chunks.is_empty() {
            return Ok(Vec::new());
        }
        let client = self.client.clone();
        let fetched = self.client.wait(async move {
            let each = chunks.into_iter().map(|(key, size)| {
                let client = client.clone();
                async move {
                    let (object, chunk) = key;
                    let range = chunk * CHUNK..((chunk + 1) * CHUNK).min(size);
                    (key, client.get_range(object.to_string(), range).await)
                }
            });
            let all = futures_util::stream::iter(each).buffer_unordered(TOGETHER);
            all.collect::<Vec<_>>().await
        })?;
        let mut whole = Vec::new();
        let mut failed = None;
        for (key, bytes) in fetched {
            match bytes {
                Ok(bytes) => {
                    self.cache.add(key, &bytes);
                    whole.push((key, bytes));
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
