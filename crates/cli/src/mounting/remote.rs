//! `strongroom://HOST[:PORT][,HOST[:PORT]…]/`: a file system that a metadata server shares, or one of several that take each other's place.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::error::{Error, Result};

const SCHEME: &[u8] = b"strongroom://";

/// The addresses (host and port, with commas between) that `name` says the servers have; `None` where it is an ordinary path.
pub(crate) fn address(name: &Path) -> Result<Option<String>> {
    let bytes = name.as_os_str().as_bytes();
    let Some(rest) = bytes.strip_prefix(SCHEME) else {
        return Ok(None);
    };
    let refuse = |why: &str| {
        Error::usage(format!(
            "{}: {why}; a shared file system is written strongroom://HOST/ or strongroom://HOST:PORT/, one with a standby \
             strongroom://HOST,HOST/",
            name.display()
        ))
    };
    let rest = std::str::from_utf8(rest).map_err(|_| refuse("not text"))?;
    let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
    if !path.is_empty() {
        return Err(refuse("only the whole file system can be mounted"));
    }
    let addresses = hosts.split(',').map(with_port);
    let addresses: std::result::Result<Vec<String>, &str> = addresses.collect();
    Ok(Some(addresses.map_err(refuse)?.join(",")))
}

/// A host with its port.
fn with_port(host: &str) -> std::result::Result<String, &'static str> {
    let known = |c: char| c.is_ascii_alphanumeric() || ".-_:[]%".contains(c);
    if host.is_empty() || !host.chars().all(known) {
        return Err("not a host");
    }
    // An IPv6 address has its colons in brackets.
    let (name_part, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
        _ => (host, None),
    };
    let bracketed = name_part.starts_with('[') && name_part.ends_with(']');
    if name_part.is_empty() || name_part.contains(':') && !bracketed {
        return Err("an IPv6 address is written in brackets");
    }
    match port.map(str::parse::<u16>) {
        None => Ok(format!("{host}:{}", metadata_proto::DEFAULT_PORT)),
        Some(Ok(port)) if port != 0 => Ok(host.to_owned()),
        Some(_) => Err("not a port"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str) -> Result<Option<String>> {
        address(Path::new(name))
    }

    #[test]
    fn a_server_is_named_with_or_without_a_port() {
        let port = metadata_proto::DEFAULT_PORT;
        for (name, expected) in [
            ("strongroom://host", format!("host:{port}")),
            ("strongroom://host/", format!("host:{port}")),
            ("strongroom://10.0.0.1:99/", "10.0.0.1:99".into()),
            ("strongroom://[::1]/", format!("[::1]:{port}")),
            (
                "strongroom://a,b:99,[::1]/",
                format!("a:{port},b:99,[::1]:{port}"),
            ),
            ("strongroom://[fe80::1%eth0]:7/", "[fe80::1%eth0]:7".into()),
        ] {
            assert_eq!(of(name).unwrap(), Some(expected), "{name}");
        }
        assert_eq!(of("/srv/room").unwrap(), None);
        assert_eq!(of("strongroom:").unwrap(), None);
    }

    #[test]
    fn what_is_no_server_is_refused() {
        for name in [
            "strongroom://",
            "strongroom:///x",
            "strongroom://host/sub",
            "strongroom://me@host/",
            "strongroom://host:0/",
            "strongroom://host:99999/",
            "strongroom://::1/",
            "strongroom://:7420/",
            "strongroom://a,/",
            "strongroom://a,b:0/",
        ] {
            assert!(of(name).is_err(), "{name}");
        }
    }
}
