//! Which bytes of a file come from where: ranges that do not overlap, each with its source.
//!
//! 1. Pieces never overlap and are never empty.
//! 2. A range without a piece is a hole, which reads as zeros.
//!
//! It does not know what a source is: [`Source`] says what half of one is.

use std::collections::BTreeMap;

/// Where a piece's bytes are.
pub(crate) trait Source: Clone {
    /// The source of what is left without the first `bytes`.
    fn skip(&self, bytes: u64) -> Self;
    /// The source of the first `bytes`.
    fn keep(&self, bytes: u64) -> Self;
    /// Whether `next` goes on where `len` bytes of this end, so that the two are one piece.
    fn continues(&self, len: u64, next: &Self) -> bool;
}

/// Ranges without more.
impl Source for () {
    fn skip(&self, _bytes: u64) {}
    fn keep(&self, _bytes: u64) {}
    fn continues(&self, _len: u64, _next: &()) -> bool {
        true
    }
}

/// A range of a file, in bytes, and where its bytes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece<S> {
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) source: S,
}

/// The pieces of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pieces<S>(BTreeMap<u64, (u64, S)>);

impl<S> Default for Pieces<S> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<S: Source> Pieces<S> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = Piece<S>> {
        self.0.iter().map(|(offset, (len, source))| Piece {
            offset: *offset,
            len: *len,
            source: source.clone(),
        })
    }

    /// What there is of `from..to`, cut to it.
    pub(crate) fn within(&self, from: u64, to: u64) -> Vec<Piece<S>> {
        let first = self
            .0
            .range(..=from)
            .next_back()
            .map_or(from, |(at, _)| *at);
        let mut found = Vec::new();
        if from >= to {
            return found;
        }
        for (offset, (len, source)) in self.0.range(first..to) {
            let (begin, end) = ((*offset).max(from), (offset + len).min(to));
            if begin < end {
                found.push(Piece {
                    offset: begin,
                    len: end - begin,
                    source: source.skip(begin - offset).keep(end - begin),
                });
            }
        }
        found
    }

    /// Makes `from..to` a hole; returns what was there.
    pub(crate) fn cut(&mut self, from: u64, to: u64) -> Vec<Piece<S>> {
        let removed = self.within(from, to);
        let (Some(first), Some(last)) = (removed.first(), removed.last()) else {
            return removed;
        };
        let (begin, end) = (first.offset, last.offset + last.len);
        if let Some((offset, (len, source))) = self.0.range(..begin).next_back() {
            let (offset, len, source) = (*offset, *len, source.clone());
            if offset + len > begin {
                self.0
                    .insert(offset, (begin - offset, source.keep(begin - offset)));
                if offset + len > end {
                    self.0
                        .insert(end, (offset + len - end, source.skip(end - offset)));
                }
            }
        }
        if let Some((offset, (len, source))) = self.0.range(begin..end).next_back() {
            let (offset, len, source) = (*offset, *len, source.clone());
            if offset + len > end {
                self.0
                    .insert(end, (offset + len - end, source.skip(end - offset)));
            }
        }
        let gone: Vec<u64> = self.0.range(begin..end).map(|(at, _)| *at).collect();
        for at in gone {
            self.0.remove(&at);
        }
        removed
    }

    /// Puts a piece in the place of what is there, which it returns.
    pub(crate) fn put(&mut self, offset: u64, len: u64, source: S) -> Vec<Piece<S>> {
        let removed = self.cut(offset, offset + len);
        if len == 0 {
            return removed;
        }
        let (mut offset, mut len, mut source) = (offset, len, source);
        if let Some((at, (before, of))) = self.0.range(..offset).next_back()
            && at + before == offset
            && of.continues(*before, &source)
        {
            (offset, len, source) = (*at, before + len, of.clone());
        }
        if let Some((after, of)) = self.0.get(&(offset + len))
            && source.continues(len, of)
        {
            let after = *after;
            self.0.remove(&(offset + len));
            len += after;
        }
        self.0.insert(offset, (len, source));
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of one object, from a place in it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    struct At(u8, u64);

    impl Source for At {
        fn skip(&self, bytes: u64) -> Self {
            At(self.0, self.1 + bytes)
        }
        fn keep(&self, _bytes: u64) -> Self {
            self.clone()
        }
        fn continues(&self, len: u64, next: &Self) -> bool {
            self.0 == next.0 && self.1 + len == next.1
        }
    }

    #[test]
    fn pieces_agree_with_an_array_of_bytes() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..200 {
            let mut model: Vec<Option<(u8, u64)>> = vec![None; 64];
            let mut pieces = Pieces::default();
            for object in 0..20 {
                let from = random.usize(0..60);
                let to = random.usize(from..=64);
                let before = model[from..to].to_vec();
                let removed = if random.u8(0..4) == 0 {
                    model[from..to].fill(None);
                    pieces.cut(from as u64, to as u64)
                } else {
                    let base = random.u64(0..3) * 10 + from as u64;
                    let object = object % 3;
                    for (at, byte) in model[from..to].iter_mut().enumerate() {
                        *byte = Some((object, base + at as u64));
                    }
                    pieces.put(from as u64, (to - from) as u64, At(object, base))
                };
                let mut was = vec![None; to - from];
                for piece in &removed {
                    for at in 0..piece.len {
                        was[(piece.offset + at) as usize - from] =
                            Some((piece.source.0, piece.source.1 + at));
                    }
                }
                assert_eq!(was, before, "what was removed");
                let mut read = vec![None; 64];
                let mut end = 0;
                for piece in pieces.iter() {
                    assert!(piece.len > 0 && piece.offset >= end);
                    end = piece.offset + piece.len;
                    for at in 0..piece.len {
                        read[(piece.offset + at) as usize] =
                            Some((piece.source.0, piece.source.1 + at));
                    }
                }
                assert_eq!(read, model);
            }
        }
    }

    #[test]
    fn neighbours_become_one() {
        let mut pieces = Pieces::default();
        pieces.put(0, 10, At(1, 0));
        pieces.put(20, 10, At(1, 20));
        pieces.put(10, 10, At(1, 10));
        assert_eq!(pieces.iter().count(), 1);
        let mut ranges = Pieces::default();
        ranges.put(0, 4, ());
        ranges.put(2, 9, ());
        assert_eq!(
            ranges.iter().map(|p| (p.offset, p.len)).collect::<Vec<_>>(),
            [(0, 11)]
        );
    }
}
