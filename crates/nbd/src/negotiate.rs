//! The handshake: from the first byte to an export and a form of requests, or to an end.
//!
//! 1. It is over within the time allowed, whatever the client does, or within twice that where it takes no answers; and takes
//!    bounded memory.
//! 2. Where TLS is required nothing but the beginning of TLS, and the end, is answered before it.
//! 3. What was agreed on before TLS is forgotten when TLS begins.

use std::io;
use std::time::Instant;

use streams::{Receiver, Sender};

use crate::export::{Export, Exports};
use crate::proto::{
    ALLOCATION_ID, FIXED_NEWSTYLE, Form, IHAVEOPT, NBDMAGIC, NO_ZEROES, PAYLOAD_MAX, Rep,
    STRING_MAX, info, opt, option_reply, u16_at, u32_at, u64_at,
};
use crate::wire::Wire;
use crate::{Tls, TlsPolicy};

/// Longest data of an option that is looked at, bytes.
const OPTION_MAX: usize = 64 << 10;
/// Longest data of an option that is skipped; more ends the connection.
const SKIPPED_MAX: u32 = 16 << 20;
/// The only metadata context.
const ALLOCATION: &[u8] = b"base:allocation";

/// What was agreed on.
#[derive(Debug)]
pub(crate) struct Agreed {
    pub(crate) export: Export,
    pub(crate) form: Form,
    /// `base:allocation` was chosen.
    pub(crate) allocation: bool,
}

/// What a server offers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Offer<'s> {
    pub(crate) exports: &'s Exports,
    pub(crate) tls: Option<&'s Tls>,
    pub(crate) policy: TlsPolicy,
}

struct Negotiation<'n> {
    offer: Offer<'n>,
    wire: &'n mut Wire,
    receiver: &'n mut Receiver,
    deadline: Instant,
    no_zeroes: bool,
    form: Form,
    /// The export for which `base:allocation` was chosen.
    allocation: Option<String>,
}

/// What an option leads to.
enum Next {
    Option,
    Transmission(Export),
    End,
}

/// Negotiates. `None` where the client ended it in order.
pub(crate) fn negotiate(
    offer: Offer<'_>,
    wire: &mut Wire,
    receiver: &mut Receiver,
    deadline: Instant,
) -> io::Result<Option<Agreed>> {
    let mut this = Negotiation {
        offer,
        wire,
        receiver,
        deadline,
        no_zeroes: false,
        form: Form::Simple,
        allocation: None,
    };
    let mut hello = Vec::with_capacity(18);
    hello.extend_from_slice(&NBDMAGIC.to_be_bytes());
    hello.extend_from_slice(&IHAVEOPT.to_be_bytes());
    hello.extend_from_slice(&(FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes());
    this.send(&hello)?;
    let mut flags = [0; 4];
    if !this.fill(&mut flags)? {
        // Somebody who only looked whether a server is there.
        return Ok(None);
    }
    let flags = u32::from_be_bytes(flags);
    if flags & !u32::from(FIXED_NEWSTYLE | NO_ZEROES) != 0 {
        return Err(nonsense("flags that nobody knows"));
    }
    if flags & u32::from(FIXED_NEWSTYLE) == 0 {
        return Err(nonsense("a client of before fixed newstyle"));
    }
    this.no_zeroes = flags & u32::from(NO_ZEROES) != 0;
    loop {
        match this.option()? {
            Next::Option => (),
            Next::End => return Ok(None),
            Next::Transmission(export) => {
                let allocation = this.allocation.as_deref() == Some(&export.name);
                return Ok(Some(Agreed {
                    allocation: allocation && this.form > Form::Simple,
                    form: this.form,
                    export,
                }));
            }
        }
    }
}

fn nonsense(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Goes on waiting until `deadline`.
fn until(deadline: Instant) -> impl FnMut(bool) -> io::Result<()> {
    move |_| {
        if Instant::now() >= deadline {
            Err(io::ErrorKind::TimedOut.into())
        } else {
            Ok(())
        }
    }
}

impl Negotiation<'_> {
    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        Sender::default().send(self.wire, [bytes, &[]])
    }

    fn reply(&self, option: u32, kind: Rep, data: &[u8]) -> io::Result<Next> {
        self.send(&option_reply(option, kind, data))?;
        Ok(Next::Option)
    }

    fn fill(&mut self, out: &mut [u8]) -> io::Result<bool> {
        self.receiver
            .fill(self.wire, out, &mut until(self.deadline))
    }

    /// Receives an option and answers it.
    fn option(&mut self) -> io::Result<Next> {
        if Instant::now() >= self.deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut head = [0; 16];
        if !self.fill(&mut head)? {
            return Ok(Next::End);
        }
        if u64_at(&head, 0) != IHAVEOPT {
            return Err(nonsense("what came is no option"));
        }
        let (option, len) = (u32_at(&head, 8), u32_at(&head, 12));
        if len as usize > OPTION_MAX {
            return self.skip(option, len);
        }
        let mut data = vec![0; len as usize];
        self.receiver
            .fill_all(self.wire, &mut data, &mut until(self.deadline))?;
        let plain_only = self.offer.policy == TlsPolicy::Require && !self.wire.is_secure();
        match option {
            opt::STARTTLS => self.start_tls(&data),
            opt::ABORT => {
                self.reply(option, Rep::Ack, &[])?;
                Ok(Next::End)
            }
            opt::EXPORT_NAME if plain_only => Err(nonsense(
                "an export was asked for before TLS, which is required",
            )),
            _ if plain_only => self.reply(option, Rep::TlsRequired, b"begin TLS first"),
            opt::EXPORT_NAME => self.export_name(&data),
            opt::LIST => self.list(&data),
            opt::INFO | opt::GO => self.info(option, &data),
            opt::STRUCTURED_REPLY => self.structured(&data),
            opt::EXTENDED_HEADERS => self.extended(&data),
            opt::LIST_META_CONTEXT | opt::SET_META_CONTEXT => self.contexts(option, &data),
            _ => self.reply(option, Rep::Unsupported, b"there is no such option here"),
        }
    }

    fn skip(&mut self, option: u32, len: u32) -> io::Result<Next> {
        if len > SKIPPED_MAX || option == opt::EXPORT_NAME {
            return Err(nonsense("an option that is far too long"));
        }
        let waited = &mut until(self.deadline);
        self.receiver.skip(self.wire, len as usize, waited)?;
        self.reply(option, Rep::TooBig, b"the option is too long")
    }

    fn start_tls(&mut self, data: &[u8]) -> io::Result<Next> {
        let option = opt::STARTTLS;
        if !data.is_empty() || self.wire.is_secure() {
            let words: &[u8] = if data.is_empty() {
                b"TLS is there already"
            } else {
                b"this option has no data"
            };
            return self.reply(option, Rep::Invalid, words);
        }
        let Some(tls) = self.offer.tls else {
            return self.reply(option, Rep::Policy, b"there is no TLS here");
        };
        if self.receiver.ready() > 0 {
            // Somebody in between could have put it there.
            return Err(nonsense(
                "something came in plain after the request for TLS",
            ));
        }
        self.reply(option, Rep::Ack, &[])?;
        self.wire.start_tls(tls, self.deadline)?;
        self.form = Form::Simple;
        self.allocation = None;
        Ok(Next::Option)
    }

    fn export_name(&mut self, data: &[u8]) -> io::Result<Next> {
        // There is no way to refuse but to hang up.
        if self.form == Form::Extended {
            return Err(nonsense("EXPORT_NAME after extended headers"));
        }
        let export = self.offer.exports.find(data);
        let export = export.ok_or_else(|| nonsense("an export that is not here"))?;
        let mut answer = Vec::with_capacity(134);
        answer.extend_from_slice(&export.device.len().to_be_bytes());
        answer.extend_from_slice(&export.flags(self.form > Form::Simple).to_be_bytes());
        if !self.no_zeroes {
            answer.resize(answer.len() + 124, 0);
        }
        self.send(&answer)?;
        Ok(Next::Transmission(export.clone()))
    }

    fn list(&mut self, data: &[u8]) -> io::Result<Next> {
        if !data.is_empty() {
            return self.reply(opt::LIST, Rep::Invalid, b"this option has no data");
        }
        for export in self.offer.exports.iter() {
            let mut data = Vec::new();
            // At most 4096 each.
            data.extend_from_slice(&(export.name.len() as u32).to_be_bytes());
            data.extend_from_slice(export.name.as_bytes());
            data.extend_from_slice(export.description.as_bytes());
            self.reply(opt::LIST, Rep::Server, &data)?;
        }
        self.reply(opt::LIST, Rep::Ack, &[])
    }

    fn info(&mut self, option: u32, data: &[u8]) -> io::Result<Next> {
        let Some((name, wanted)) = parse_info(data) else {
            return self.reply(option, Rep::Invalid, b"the option's data make no sense");
        };
        let Some(export) = self.offer.exports.find(name) else {
            return self.reply(option, Rep::Unknown, b"there is no export of this name");
        };
        let answer = |kind: u16, rest: &[&[u8]]| {
            let mut data = kind.to_be_bytes().to_vec();
            data.extend(rest.iter().flat_map(|part| part.iter()));
            self.reply(option, Rep::Info, &data)
        };
        let flags = export.flags(self.form > Form::Simple);
        answer(
            info::EXPORT,
            &[&export.device.len().to_be_bytes(), &flags.to_be_bytes()],
        )?;
        if wanted.contains(&info::NAME) {
            answer(info::NAME, &[export.name.as_bytes()])?;
        }
        if wanted.contains(&info::DESCRIPTION) && !export.description.is_empty() {
            answer(info::DESCRIPTION, &[export.description.as_bytes()])?;
        }
        // Any length is served; less than a page costs as much as one. Sent unasked: a client may ignore it.
        let sizes: [u32; 3] = [1, 4096, PAYLOAD_MAX];
        let sizes: Vec<u8> = sizes.iter().flat_map(|size| size.to_be_bytes()).collect();
        answer(info::BLOCK_SIZE, &[&sizes])?;
        self.reply(option, Rep::Ack, &[])?;
        Ok(if option == opt::GO {
            Next::Transmission(export.clone())
        } else {
            Next::Option
        })
    }

    fn structured(&mut self, data: &[u8]) -> io::Result<Next> {
        let option = opt::STRUCTURED_REPLY;
        match self.form {
            _ if !data.is_empty() => self.reply(option, Rep::Invalid, b"this option has no data"),
            Form::Extended => {
                let words = b"extended headers are agreed on already";
                self.reply(option, Rep::ExtendedHeaders, words)
            }
            Form::Structured => self.reply(option, Rep::Invalid, b"agreed on already"),
            Form::Simple => {
                self.form = Form::Structured;
                self.reply(option, Rep::Ack, &[])
            }
        }
    }

    fn extended(&mut self, data: &[u8]) -> io::Result<Next> {
        let option = opt::EXTENDED_HEADERS;
        match self.form {
            _ if !data.is_empty() => self.reply(option, Rep::Invalid, b"this option has no data"),
            Form::Extended => self.reply(option, Rep::Invalid, b"agreed on already"),
            Form::Structured | Form::Simple => {
                self.form = Form::Extended;
                self.reply(option, Rep::Ack, &[])
            }
        }
    }

    fn contexts(&mut self, option: u32, data: &[u8]) -> io::Result<Next> {
        let set = option == opt::SET_META_CONTEXT;
        if set {
            self.allocation = None;
        }
        if set && self.form == Form::Simple {
            return self.reply(option, Rep::Invalid, b"agree on structured replies first");
        }
        let Some((name, queries)) = parse_contexts(data) else {
            return self.reply(option, Rep::Invalid, b"the option's data make no sense");
        };
        let Some(export) = self.offer.exports.find(name) else {
            return self.reply(option, Rep::Unknown, b"there is no export of this name");
        };
        let all = !set && queries.is_empty();
        let asked = |query: &&[u8]| *query == ALLOCATION || (!set && *query == b"base:");
        if all || queries.iter().any(asked) {
            let mut data = if set { ALLOCATION_ID } else { 0 }.to_be_bytes().to_vec();
            data.extend_from_slice(ALLOCATION);
            let name = export.name.clone();
            self.reply(option, Rep::MetaContext, &data)?;
            if set {
                self.allocation = Some(name);
            }
        }
        self.reply(option, Rep::Ack, &[])
    }
}

/// The name, and what is wanted: a string, a number of numbers, the numbers.
fn parse_info(data: &[u8]) -> Option<(&[u8], Vec<u16>)> {
    let (name, rest) = string(data)?;
    let (count, rest) = rest.split_at_checked(2)?;
    let wanted: Vec<u16> = rest.chunks_exact(2).map(|two| u16_at(two, 0)).collect();
    (rest.len() == usize::from(u16_at(count, 0)) * 2).then_some((name, wanted))
}

/// The name, and the queries: a string, a number of strings, the strings.
fn parse_contexts(data: &[u8]) -> Option<(&[u8], Vec<&[u8]>)> {
    let (name, rest) = string(data)?;
    let (count, mut rest) = rest.split_at_checked(4)?;
    let mut queries = Vec::new();
    for _ in 0..u32_at(count, 0) {
        let (query, after) = string(rest)?;
        queries.push(query);
        rest = after;
    }
    rest.is_empty().then_some((name, queries))
}

/// A string after its length, and what follows it.
fn string(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = data.split_at_checked(4)?;
    let len = u32_at(len, 0) as usize;
    if len > STRING_MAX {
        return None;
    }
    rest.split_at_checked(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_with_false_lengths_are_refused() {
        assert_eq!(
            parse_info(&[0, 0, 0, 1, b'a', 0, 1, 0, 3]),
            Some((&b"a"[..], vec![3]))
        );
        for bad in [
            &[][..],
            &[0, 0, 0],
            &[0, 0, 0, 2, b'a', 0, 0],
            &[0xff; 8],
            &[0, 0, 0, 1, b'a'],
            &[0, 0, 0, 1, b'a', 0, 2, 0, 3],
            &[0, 0, 0, 1, b'a', 0, 1, 0, 3, 0],
        ] {
            assert_eq!(parse_info(bad), None, "{bad:?}");
        }
        let good = [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, b'x'];
        assert_eq!(parse_contexts(&good), Some((&b""[..], vec![&b"x"[..]])));
        for cut in 0..good.len() {
            assert_eq!(parse_contexts(&good[..cut]), None, "{cut}");
        }
        assert_eq!(parse_contexts(&[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]), None);
    }
}
