//! A log that fails on purpose, before a real engine: with the fates of the store double beside it.

use std::sync::Arc;

use bytes::Bytes;
use strongroom_bucket::{CommitLog, Created, LogError};

use crate::store::{Fate, Store};

/// An engine behind a bad connection.
#[derive(Debug)]
pub(crate) struct Faulty {
    pub(crate) engine: Arc<dyn CommitLog>,
    pub(crate) store: Store,
}

fn broken(why: impl ToString) -> LogError {
    LogError::Unanswered(why.to_string())
}

impl Faulty {
    fn failed(&self, e: impl ToString) -> LogError {
        match self.store.is_gone() {
            true => LogError::Refused(std::io::ErrorKind::Other, e.to_string()),
            false => broken(e),
        }
    }

    fn fate(&self) -> Result<Fate, LogError> {
        self.store.fate().map_err(|e| self.failed(e))
    }

    fn read(&self) -> Result<(), LogError> {
        self.store.read().map_err(|e| self.failed(e))
    }
}

#[async_trait::async_trait]
impl CommitLog for Faulty {
    fn address(&self) -> Option<String> {
        self.engine.address()
    }

    fn record_max(&self) -> u64 {
        self.engine.record_max()
    }

    fn inline_max(&self) -> u64 {
        self.engine.inline_max()
    }

    async fn prepare(&self) -> Result<(), LogError> {
        self.engine.prepare().await
    }

    async fn create(
        &self,
        room: &str,
        number: u64,
        record: Bytes,
        previous: &[u8],
    ) -> Result<Created, LogError> {
        let fate = self.fate()?;
        self.store.held().await;
        let create = || self.engine.create(room, number, record.clone(), previous);
        match fate {
            Fate::Done => create().await,
            Fate::Refused => Err(broken("500")),
            Fate::Forbidden => Err(LogError::Forbidden("no rights".into())),
            // What an engine's connection brings is done at once or never.
            Fate::AnswerLost | Fate::Late => {
                let _ = create().await;
                Err(broken("the answer was lost"))
            }
            Fate::Repeated => {
                let _ = create().await;
                create().await
            }
            Fate::Slow => {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                create().await
            }
        }
    }

    async fn get(&self, room: &str, number: u64) -> Result<Option<Bytes>, LogError> {
        self.read()?;
        self.engine.get(room, number).await
    }

    async fn list(&self, room: &str, after: u64) -> Result<Vec<u64>, LogError> {
        self.read()?;
        self.engine.list(room, after).await
    }

    async fn delete(&self, room: &str, numbers: &[u64]) -> Result<(), LogError> {
        match self.fate()? {
            Fate::Refused | Fate::Forbidden => Err(broken("500")),
            Fate::AnswerLost | Fate::Late => {
                let _ = self.engine.delete(room, numbers).await;
                Err(broken("the answer was lost"))
            }
            Fate::Done | Fate::Repeated | Fate::Slow => self.engine.delete(room, numbers).await,
        }
    }
}
