//! Messages over a connection: each a frame of its length (four bytes, big-endian) and the message in
//! [postcard's form](https://postcard.jamesmunns.com/wire-format).
//!
//! 1. A frame is at most [`FRAME_MAX`] bytes, and holds one message and nothing behind it.
//!
//! It deliberately does not know what is in a message, or whose the connection is.

use std::io;
use std::marker::PhantomData;
use std::pin::Pin;

use bytes::{Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tarpc::serde_transport;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_serde::{Deserializer, Serializer};
use tokio_util::codec::LengthDelimitedCodec;

/// Longest message, in bytes.
pub const FRAME_MAX: usize = 8 << 20;

/// Messages `In` that arrive on a connection and `Out` that leave on it.
pub type Transport<Stream, In, Out> =
    serde_transport::Transport<Stream, In, Out, Postcard<In, Out>>;

/// Sends and receives messages on a connection that both sides proved themselves on.
pub fn transport<Stream, In, Out>(stream: Stream) -> Transport<Stream, In, Out>
where
    Stream: AsyncRead + AsyncWrite,
    In: DeserializeOwned,
    Out: Serialize,
{
    let framed = LengthDelimitedCodec::builder()
        .max_frame_length(FRAME_MAX)
        .new_framed(stream);
    serde_transport::new(framed, Postcard(PhantomData))
}

/// The form of messages.
#[derive(Debug)]
pub struct Postcard<In, Out>(PhantomData<fn(In) -> Out>);

impl<In: DeserializeOwned, Out> Deserializer<In> for Postcard<In, Out> {
    type Error = io::Error;

    fn deserialize(self: Pin<&mut Self>, frame: &BytesMut) -> io::Result<In> {
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
    use super::*;

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
}
