//! TLS to the server, and the framing of messages in it.

use std::io;
use std::sync::Arc;

use metadata_proto::identity::{Identity, IdentityError};
use metadata_proto::rpc::{LET_IN, MetadataRequest, MetadataResponse, NOT_LET_IN};
use metadata_proto::transport::{Transport, transport};
use rustls::pki_types::ServerName;
use tarpc::{ClientMessage, Response};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

type Incoming = Response<MetadataResponse>;
type Outgoing = ClientMessage<MetadataRequest>;

/// The certificates and keys that authenticate client and server to each other.
pub(super) struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("name", &self.name).finish()
    }
}

impl Tls {
    pub(super) fn new(identity: &Identity) -> Result<Self, IdentityError> {
        Ok(Self {
            connector: TlsConnector::from(Arc::new(identity.client_config()?)),
            name: identity.server_name()?,
        })
    }

    /// Messages over a connection that both sides proved themselves on. `PermissionDenied`: the key is no user's any more.
    pub(super) async fn transport(
        &self,
        tcp: TcpStream,
    ) -> io::Result<Transport<TlsStream<TcpStream>, Incoming, Outgoing>> {
        let mut tls = self.connector.connect(self.name.clone(), tcp).await?;
        match tls.read_u8().await? {
            LET_IN => {}
            NOT_LET_IN => return Err(io::ErrorKind::PermissionDenied.into()),
            _ => return Err(io::Error::other("it is of another version")),
        }
        Ok(transport(tls))
    }
}
