//! Messages over a connection: each a frame of its length (four bytes, big-endian) and the message in
//! [postcard's form](https://postcard.jamesmunns.com/wire-format).
//!
//! 1. A frame is at most [`FRAME_MAX`] bytes, one of a client at most [`REQUEST_MAX`], and holds one message and nothing behind it.
//! 2. A server decides by the length of a frame, before anything of it is decoded, whether it takes it.
//!
//! It deliberately does not know what is in a message, or whose the connection is.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::pin::Pin;

use bytes::{Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_serde::{Deserializer, Serializer};
use tokio_util::codec::{Decoder, Encoder, Framed, LengthDelimitedCodec};

/// Longest message, in bytes.
pub const FRAME_MAX: usize = 8 << 20;
/// Longest message of a client, in bytes. The longest that one has a reason to send are a commit of 256 parts of a file and a claim of
/// [`LOCKS_MAX`](crate::rpc::LOCKS_MAX) locks.
pub const REQUEST_MAX: usize = 1 << 20;

/// Messages `In` that arrive on a connection and `Out` that leave on it.
pub type Transport<Stream, In, Out> =
    tokio_serde::Framed<Framed<Stream, Frames>, In, Out, Postcard<In, Out>>;

/// Decides by the length of a frame whether its message is taken; an error ends the connection.
pub type Admit = Box<dyn FnMut(usize) -> io::Result<()> + Send>;

/// Sends and receives messages on a connection that both sides proved themselves on.
pub fn transport<Stream, In, Out>(stream: Stream) -> Transport<Stream, In, Out>
where
    Stream: AsyncRead + AsyncWrite,
    In: DeserializeOwned,
    Out: Serialize,
{
    carry(stream, FRAME_MAX, Box::new(|_| Ok(())))
}

/// The same for a server, which receives no more than [`REQUEST_MAX`] bytes at once, and what `admit` takes.
pub fn serve<Stream, In, Out>(stream: Stream, admit: Admit) -> Transport<Stream, In, Out>
where
    Stream: AsyncRead + AsyncWrite,
    In: DeserializeOwned,
    Out: Serialize,
{
    carry(stream, REQUEST_MAX, admit)
}

fn carry<Stream, In, Out>(
    stream: Stream,
    incoming_max: usize,
    admit: Admit,
) -> Transport<Stream, In, Out>
where
    Stream: AsyncRead + AsyncWrite,
{
    let postcard = Postcard {
        admit,
        messages: PhantomData,
    };
    let frames = Framed::new(stream, Frames::of(incoming_max));
    tokio_serde::Framed::new(frames, postcard)
}

/// The frames of both directions, which may have different lengths.
#[derive(Debug)]
pub struct Frames {
    incoming: LengthDelimitedCodec,
    outgoing: LengthDelimitedCodec,
}

impl Frames {
    fn of(incoming_max: usize) -> Self {
        let of = |max| {
            let mut frames = LengthDelimitedCodec::builder();
            frames.max_frame_length(max).new_codec()
        };
        Self {
            incoming: of(incoming_max),
            outgoing: of(FRAME_MAX),
        }
    }
}

impl Decoder for Frames {
    type Item = BytesMut;
    type Error = io::Error;

    fn decode(&mut self, bytes: &mut BytesMut) -> io::Result<Option<BytesMut>> {
        self.incoming.decode(bytes)
    }
}

impl Encoder<Bytes> for Frames {
    type Error = io::Error;

    fn encode(&mut self, message: Bytes, out: &mut BytesMut) -> io::Result<()> {
        self.outgoing.encode(message, out)
    }
}

/// The form of messages.
pub struct Postcard<In, Out> {
    admit: Admit,
    messages: PhantomData<fn(In) -> Out>,
}

impl<In, Out> fmt::Debug for Postcard<In, Out> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Postcard(..)")
    }
}

impl<In: DeserializeOwned, Out> Deserializer<In> for Postcard<In, Out> {
    type Error = io::Error;

    fn deserialize(self: Pin<&mut Self>, frame: &BytesMut) -> io::Result<In> {
        (self.get_mut().admit)(frame.len())?;
        decode(frame)
    }
}

impl<In, Out: Serialize> Serializer<Out> for Postcard<In, Out> {
    type Error = io::Error;

    fn serialize(self: Pin<&mut Self>, message: &Out) -> io::Result<Bytes> {
        postcard::to_allocvec(message)
            .map(Bytes::from)
            .map_err(malformed)
    }
}

fn decode<In: DeserializeOwned>(frame: &[u8]) -> io::Result<In> {
    match postcard::take_from_bytes(frame).map_err(malformed)? {
        (message, []) => Ok(message),
        (_, rest) => Err(malformed(format!("{} bytes follow a message", rest.len()))),
    }
}

fn malformed(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use model::{
        CHUNK_BLOCKS, FileKind, InodeNo, Lock, LockKind, LockOwner, LockTable, NewFile, Sealed,
        SegmentNo, UNIT_BLOCKS, WriteGrantId, WrittenExtent, XattrMode,
    };
    use netdisk::Boot;
    use tarpc::{ClientMessage, Request};

    use super::*;
    use crate::rpc::*;

    #[test]
    fn a_frame_is_one_message_and_nothing_else() {
        let bytes = postcard::to_allocvec(&(7_u64, vec![200_u8; 3])).unwrap();
        let read = |bytes: &[u8]| decode::<(u64, Vec<u8>)>(bytes);
        assert_eq!(read(&bytes).unwrap(), (7, vec![200; 3]));
        for cut in 0..bytes.len() {
            assert_eq!(
                read(&bytes[..cut]).unwrap_err().kind(),
                io::ErrorKind::InvalidData
            );
        }
        assert!(read(&[&bytes[..], &[0]].concat()).is_err());
        // A length that is not there is refused before that much memory is taken.
        assert!(decode::<Vec<u8>>(&[0xff, 0xff, 0xff, 0xff, 0x0f]).is_err());
    }

    /// Parts of a file that a client commits at once.
    const PARTS: usize = 256;

    #[test]
    fn a_server_takes_the_longest_messages_that_a_client_has_reason_to_send() {
        const FAR: u64 = u64::MAX;
        let (session, no, name) = (SessionId(FAR), InodeNo(FAR), vec![b'x'; 255]);
        let once = Once {
            slot: SLOTS_MAX,
            sequence: FAR,
        };
        let claim = LockClaim {
            no,
            table: LockTable::Flock,
            owner: LockOwner(FAR),
            lock: Lock {
                kind: LockKind::Exclusive,
                start: FAR,
                end: FAR,
                pid: u32::MAX,
            },
        };
        let units = (CHUNK_BLOCKS / UNIT_BLOCKS) as usize;
        let written = Written {
            grant: WriteGrantId(FAR),
            boot: Boot([0xff; 16]),
            durable: true,
            extent: WrittenExtent {
                offset: FAR,
                sealed: Sealed {
                    segment: SegmentNo(FAR),
                    position: u32::MAX,
                    blocks: CHUNK_BLOCKS,
                    nonce: model::NoncePart([0xff; _]),
                    tags: (0..units).map(|_| [0xff; _]).collect(),
                    digests: vec![[0xff; _]; units],
                },
                end: FAR,
            },
        };
        let mut link = NewFile::of_kind(FileKind::Symlink);
        link.target = vec![b'x'; 4095];
        let change = |change| MetadataRequest::Change {
            session,
            slot: SLOTS_MAX,
            sequence: FAR,
            change,
        };
        let longest = [
            MetadataRequest::ReclaimLocks {
                session,
                former: vec![session; FORMER_MAX],
                claims: vec![claim; LOCKS_MAX],
            },
            MetadataRequest::Place {
                session,
                no,
                written: vec![written; PARTS],
                onto: Some(model::Timestamp::new(i64::MAX, u32::MAX)),
                sync: true,
            },
            MetadataRequest::Close {
                session,
                once,
                closed: vec![(no, FAR); CLOSED_MAX],
            },
            change(Change::SetXattr {
                no,
                name: name.clone(),
                value: vec![0xff; 65536],
                mode: XattrMode::Replace,
                drop_setgid: true,
            }),
            change(Change::Rename {
                parent: no,
                name: name.clone(),
                new_parent: no,
                new_name: name.clone(),
                mode: model::RenameMode::Exchange,
            }),
            change(Change::Make {
                parent: no,
                name,
                new: link,
            }),
        ];
        for message in longest {
            let what = format!("{message:?}");
            let request = ClientMessage::Request(Request {
                context: tarpc::context::current(),
                id: FAR,
                message,
            });
            let len = postcard::to_allocvec(&request).unwrap().len();
            assert!(
                len <= REQUEST_MAX,
                "{len}: {}",
                &what[..100.min(what.len())]
            );
        }
    }

    #[test]
    fn a_frame_that_is_too_long_or_not_admitted_is_an_error() {
        let mut frames = Frames::of(8);
        let taken = |len: u32, frames: &mut Frames| {
            let mut bytes = BytesMut::from(&len.to_be_bytes()[..]);
            bytes.extend_from_slice(&vec![0; len as usize]);
            frames.decode(&mut bytes)
        };
        assert_eq!(taken(8, &mut frames).unwrap().unwrap().len(), 8);
        assert!(taken(9, &mut frames).is_err());
        let mut postcard = Postcard::<u8, u8> {
            admit: Box::new(|len| match len {
                1 => Ok(()),
                _ => Err(io::ErrorKind::Other.into()),
            }),
            messages: PhantomData,
        };
        let mut decoded =
            |bytes: &[u8]| Pin::new(&mut postcard).deserialize(&BytesMut::from(bytes));
        assert_eq!(decoded(&[7]).unwrap(), 7);
        assert_eq!(decoded(&[7, 7]).unwrap_err().kind(), io::ErrorKind::Other);
    }
}
