//! What an administrator asks of a metadata server.

use std::time::{Duration, Instant};

use metadata_proto::admin::{Answer, Request, VERSION};
use metadata_proto::identity::{Identity, IdentityError};
use metadata_proto::rpc::{MetadataClient, Posix, Refusal};
use tokio::net::TcpStream;

use crate::transport::Tls;

/// For connecting.
const CONNECT: Duration = Duration::from_secs(10);
/// For an answer: longer than a revocation waits for a disk.
const ANSWER: Duration = Duration::from_secs(60);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The identity cannot be used.
    #[error("{0}")]
    Identity(#[from] IdentityError),
    /// The server cannot be reached.
    #[error("the metadata server at {address} cannot be reached: {why}")]
    Unreachable {
        /// Host and port.
        address: String,
        /// Why.
        why: String,
    },
    /// It has no such administrator.
    #[error("the identity is not an administrator's of this room")]
    NotAnAdministrator,
    /// It refused.
    #[error("the metadata server refused: {0}")]
    Refused(Refusal),
}

/// Asks the server at `address` once; of several, with commas between, the one that serves the room.
///
/// # Errors
/// Where it gives no answer; a change may have been made then.
pub fn administer(
    address: &str,
    identity: &Identity,
    request: Request,
) -> Result<Answer, AdminError> {
    let unreachable = |why: String| AdminError::Unreachable {
        address: address.to_owned(),
        why,
    };
    let tls = Tls::new(identity)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| unreachable(e.to_string()))?;
    let connect_to = |address: &str| {
        runtime.block_on(async {
            let connect = async { tls.transport(TcpStream::connect(address).await?).await };
            let transport = tokio::time::timeout(CONNECT, connect)
                .await
                .map_err(|_| std::io::Error::from(std::io::ErrorKind::TimedOut))??;
            Ok::<_, std::io::Error>(MetadataClient::new(Default::default(), transport).spawn())
        })
    };
    let mut connected = Err(std::io::ErrorKind::NotFound.into());
    for address in address.split(',') {
        connected = connect_to(address);
        if connected.is_ok() {
            break;
        }
    }
    let client = match connected {
        Ok(client) => client,
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
            return Err(AdminError::NotAnAdministrator);
        }
        Err(e) => return Err(unreachable(e.to_string())),
    };
    let mut context = tarpc::context::current();
    context.deadline = Instant::now() + ANSWER;
    match runtime.block_on(client.administer(context, VERSION, request)) {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(Refusal::Posix(Posix::NotPermitted))) => Err(AdminError::NotAnAdministrator),
        Ok(Err(refusal)) => Err(AdminError::Refused(refusal)),
        Err(e) => Err(unreachable(format!(
            "{e}: a server before this version knows no administrators"
        ))),
    }
}
