//! The pieces of a logical volume as one device, still encrypted.

use std::io;
use std::sync::Arc;

use device::Device;

use super::header::Header;
use super::metadata::{Metadata, Segment};
use crate::common::VolumeError;

/// Pieces in order, without a gap; bytes.
#[derive(Debug)]
pub(super) struct Segments {
    below: Arc<dyn Device>,
    pieces: Vec<Piece>,
    len: u64,
}

#[derive(Debug, Clone, Copy)]
struct Piece {
    logical: u64,
    len: u64,
    physical: u64,
}

impl Segments {
    pub(super) fn new(
        below: Arc<dyn Device>,
        header: &Header,
        metadata: &Metadata,
    ) -> Result<Self, VolumeError> {
        let pieces = metadata
            .segments
            .iter()
            .map(|segment| piece(segment, header.block_size))
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| damaged("a piece is beyond the end of any disk"))?;
        let mut len = 0_u64;
        for piece in &pieces {
            if piece.logical != len {
                return Err(damaged("its pieces have gaps, or overlap"));
            }
            if piece
                .physical
                .checked_add(piece.len)
                .is_none_or(|end| end > below.len())
            {
                return Err(damaged("a piece is outside the image; is it cut short?"));
            }
            len = len
                .checked_add(piece.len)
                .ok_or_else(|| damaged("its pieces are too long"))?;
        }
        if len < metadata.bytes || !metadata.bytes.is_multiple_of(512) {
            return Err(damaged("its pieces do not make up its length"));
        }
        Ok(Self { below, pieces, len })
    }
}

fn damaged(what: &str) -> VolumeError {
    VolumeError::Damaged(format!("the logical volume: {what}"))
}

fn piece(segment: &Segment, block: u64) -> Option<Piece> {
    Some(Piece {
        logical: segment.logical.checked_mul(block)?,
        len: segment.blocks.checked_mul(block)?,
        physical: segment.physical.checked_mul(block)?,
    })
}

impl Device for Segments {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if offset
            .checked_add(buf.len() as u64)
            .is_none_or(|end| end > self.len)
        {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (mut buf, mut offset) = (buf, offset);
        let mut index = self.pieces.partition_point(|p| p.logical + p.len <= offset);
        while !buf.is_empty() {
            let piece = self.pieces[index];
            let within = offset - piece.logical;
            let part = (piece.len - within).min(buf.len() as u64) as usize;
            let (now, rest) = buf.split_at_mut(part);
            self.below.read_at(now, piece.physical + within)?;
            buf = rest;
            offset += part as u64;
            index += 1;
        }
        Ok(())
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Err(read_only())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Err(read_only())
    }

    fn write_zeros(&self, _: u64, _: u64) -> io::Result<()> {
        Err(read_only())
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn discards_to_zeros(&self) -> bool {
        false
    }

    fn is_read_only(&self) -> bool {
        true
    }
}

fn read_only() -> io::Error {
    io::Error::new(
        io::ErrorKind::PermissionDenied,
        "FileVault volumes are only read",
    )
}
