//! The object store as the log of commits: an object each, created with `If-None-Match: *`.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{Error, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use tokio::time::timeout;

use crate::log::{CommitLog, Created, LogError};
use crate::names::{self, COMMITS};
use crate::trying::{Fails, TRY};

/// Removals at once.
const TOGETHER: usize = 8;
/// The most memory that is set aside because a store names a size.
const SET_ASIDE: u64 = 16 << 20;

/// Commits in the store that has everything else of the room.
#[derive(Debug)]
pub(crate) struct InStore(pub(crate) Arc<dyn ObjectStore>);

fn path(room: &str, name: &str) -> Path {
    Path::from(format!("{room}/{name}"))
}

fn unanswered<T>(_: T) -> Error {
    Error::Generic {
        store: "S3",
        source: "no answer".into(),
    }
}

/// Reads a whole list, which has as many pages as it has. A store that does not answer for a page is left after [`TRY`].
pub(crate) async fn list_whole(
    mut listed: BoxStream<'_, Result<ObjectMeta, Error>>,
) -> Result<Vec<ObjectMeta>, Error> {
    let mut all = Vec::new();
    while let Some(meta) = timeout(TRY, listed.next()).await.map_err(unanswered)? {
        all.push(meta?);
    }
    Ok(all)
}

/// Reads a whole object. A store that does not begin to answer, or stops in the middle, is left after [`TRY`], however large the object may be.
pub(crate) async fn read_whole(store: &dyn ObjectStore, path: &Path) -> Result<Bytes, Error> {
    let got = timeout(TRY, store.get(path)).await.map_err(unanswered)??;
    let size = got.range.end - got.range.start;
    let mut parts = got.into_stream();
    let mut bytes = BytesMut::with_capacity(size.min(SET_ASIDE) as usize);
    while let Some(part) = timeout(TRY, parts.next()).await.map_err(unanswered)? {
        bytes.extend_from_slice(&part?);
    }
    Ok(bytes.freeze())
}

fn failed(error: &Error) -> LogError {
    let words = error.words();
    match error.again() {
        crate::trying::Again::Never => LogError::Refused(error.kind(), words),
        crate::trying::Again::Briefly => LogError::Forbidden(words),
        crate::trying::Again::UntilTheEnd => LogError::Unanswered(words),
    }
}

#[async_trait]
impl CommitLog for InStore {
    fn address(&self) -> Option<String> {
        None
    }

    async fn create(
        &self,
        room: &str,
        number: u64,
        record: Bytes,
        _previous: &[u8],
    ) -> Result<Created, LogError> {
        let path = path(room, &names::commit(number));
        let options = PutOptions::from(PutMode::Create);
        match self.0.put_opts(&path, record.clone().into(), options).await {
            Ok(_) => return Ok(Created::Ours),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {}
            Err(e) => return Err(failed(&e)),
        }
        // The answer to an earlier try may have been lost: what is there says whose it is.
        match self.get(room, number).await? {
            Some(there) if there == record => Ok(Created::Ours),
            Some(_) => Ok(Created::Taken),
            None => Err(LogError::Unanswered(
                "two creations of which neither is done yet".into(),
            )),
        }
    }

    async fn get(&self, room: &str, number: u64) -> Result<Option<Bytes>, LogError> {
        let got = async {
            let path = path(room, &names::commit(number));
            read_whole(&*self.0, &path).await
        };
        match got.await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(e) => Err(failed(&e)),
        }
    }

    async fn list(&self, room: &str, after: u64) -> Result<Vec<u64>, LogError> {
        let (directory, from) = (path(room, COMMITS), path(room, &names::commit(after)));
        let listed = self.0.list_with_offset(Some(&directory), &from);
        let listed = list_whole(listed).await.map_err(|e| failed(&e))?;
        let number = |location: &Path| {
            let name = location.as_ref().strip_prefix(directory.as_ref())?;
            names::number_of(COMMITS, &format!("{COMMITS}{name}"))
        };
        let mut numbers: Vec<u64> = listed
            .iter()
            .filter_map(|meta| number(&meta.location))
            .filter(|number| *number > after)
            .collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    async fn delete(&self, room: &str, numbers: &[u64]) -> Result<(), LogError> {
        let numbers = numbers.to_vec();
        let each = numbers.into_iter().map(|number| async move {
            match self.0.delete(&path(room, &names::commit(number))).await {
                Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
                Err(e) => Err(failed(&e)),
            }
        });
        let each = futures_util::stream::iter(each).buffer_unordered(TOGETHER);
        each.try_collect().await
    }
}
