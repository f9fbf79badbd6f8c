//! Where a server answers about itself.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

/// Where the endpoint listens: a port of this machine, or an address with a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealthAddress(pub SocketAddr);

impl FromStr for HealthAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(port) = text.parse() {
            return Ok(Self(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)));
        }
        text.parse().map(Self).map_err(|_| {
            format!("'{text}' is neither a port nor an address with one: write 9640, 127.0.0.1:9640 or [::1]:9640")
        })
    }
}

impl fmt::Display for HealthAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
