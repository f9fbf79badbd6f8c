//! Extended headers, which clients of distributions of today speak only from libnbd 1.18 and qemu 8.2 on.

use crate::client::*;

#[test]
fn extended_headers_carry_long_ranges_and_every_reply_is_extended() {
    let server = memory(1 << 20);
    let mut client = Client::transmitting(&server, true);
    assert_eq!(client.write(4096, &[5; 5000]).kind, 0);
    let read = client.ask(READ, 0, 4095, 5002);
    assert_eq!((read.kind, read.offset), (1, 4095));
    assert_eq!(read.payload[..8], 4095_u64.to_be_bytes());
    assert!(read.payload[9..5009].iter().all(|b| *b == 5));
    assert_eq!((read.payload[8], read.payload[5009]), (0, 0));
    let status = client.ask(BLOCK_STATUS, 0, 0, 1 << 20);
    assert_eq!(status.kind, 6);
    let mut expected = vec![0, 0, 0, 1, 0, 0, 0, 1];
    expected.extend_from_slice(&(1_u64 << 20).to_be_bytes());
    expected.extend_from_slice(&0_u64.to_be_bytes());
    assert_eq!(status.payload, expected);
    assert_eq!(client.ask(WRITE_ZEROES, 0, 0, 1 << 20).kind, 0);
    assert_eq!(client.ask(FLUSH, 0, 0, 0).kind, 0);
    // Lengths of more than 32 bits are ranges like any other.
    assert_eq!(client.ask(WRITE_ZEROES, 0, 0, 1 << 40).error(), Some(28));
    assert_eq!(client.ask(TRIM, 0, 0, 1 << 40).error(), Some(22));
    assert_eq!(client.ask(READ, 0, u64::MAX, u64::MAX).error(), Some(22));
    assert!(
        client.ask(READ, 0, 0, 4096).payload[8..]
            .iter()
            .all(|b| *b == 0)
    );
}

#[test]
fn a_payload_where_none_belongs_is_skipped_and_refused() {
    let server = memory(1 << 20);
    let mut client = Client::transmitting(&server, true);
    for command in [READ, FLUSH, TRIM, BLOCK_STATUS, 99] {
        let mut bytes = client.head(command, PAYLOAD_LEN, 5, 0, 9000);
        bytes.extend_from_slice(&[9; 9000]);
        client.send(&bytes);
        let reply = client.reply();
        assert_eq!((reply.cookie, reply.error()), (5, Some(22)), "{command}");
    }
    assert_eq!(client.ask(READ, 0, 0, 10).kind, 1);
}

#[test]
fn options_of_forms_follow_each_other_as_the_protocol_says() {
    let server = memory(1 << 20);
    let mut client = Client::greeted(&server);
    let last = |answers: Vec<(u32, Vec<u8>)>| answers.last().unwrap().0;
    let error = |n: u32| (1 << 31) + n;
    let query = [0; 8];
    assert_eq!(last(client.option(SET_META_CONTEXT, &query)), error(3));
    assert_eq!(last(client.option(STRUCTURED_REPLY, &[1])), error(3));
    assert_eq!(last(client.option(STRUCTURED_REPLY, &[])), ACK);
    assert_eq!(last(client.option(STRUCTURED_REPLY, &[])), error(3));
    assert_eq!(last(client.option(EXTENDED_HEADERS, &[])), ACK);
    assert_eq!(last(client.option(EXTENDED_HEADERS, &[])), error(3));
    assert_eq!(last(client.option(STRUCTURED_REPLY, &[])), error(10));
    assert_eq!(last(client.option(SET_META_CONTEXT, &query)), ACK);
    // STARTTLS where there is none, PEEK_EXPORT, something of the future.
    assert_eq!(last(client.option(5, &[])), error(2));
    assert_eq!(last(client.option(4, &[])), error(1));
    assert_eq!(last(client.option(4711, &[3; 100])), error(1));
    assert_eq!(last(client.option(GO, b"\0\0\0\x05other\0\0")), error(6));
    assert_eq!(last(client.option(GO, &[9; 5])), error(3));
    assert_eq!(last(client.option(3, &[0; 100_000])), error(9));
    let infos = client.option(6, b"\0\0\0\x04disk\0\x02\0\x01\0\x02");
    let kinds: Vec<&[u8]> = infos
        .iter()
        .map(|(_, data)| data.get(..2).unwrap_or_default())
        .collect();
    assert_eq!(kinds, [&[0, 0][..], &[0, 1], &[0, 2], &[0, 3], &[]]);
    // ABORT is acknowledged, and then the server hangs up.
    assert_eq!(last(client.option(2, &[])), ACK);
    assert_eq!(client.rest().unwrap(), []);
}

/// It was answered by a chunk of data without any, which the protocol does not have.
#[test]
fn a_read_of_nothing_is_answered_by_a_chunk_without_data() {
    let server = memory(1 << 20);
    for extended in [false, true] {
        let mut client = Client::transmitting(&server, extended);
        for (flags, offset) in [(0, 0), (FUA, 4096), (0, 1 << 20)] {
            let reply = client.ask(READ, flags, offset, 0);
            assert_eq!((reply.kind, reply.payload.len()), (0, 0));
        }
        assert_eq!(client.ask(READ, 0, 1, 1).payload.len(), 9);
    }
}
