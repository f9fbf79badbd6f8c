//! The plain contents of an encrypted volume, read by this process: what a decrypted device would be, without a kernel's device mapper.
//!
//! 1. The image is opened for reading only, here and nowhere else.
//! 2. It is opened once: the volume keeps no contents in memory, so emptying the page cache of its image makes it cold.
//!
//! It deliberately does not know the formats of volumes, nor where their keys come from.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::{Access, Device, FileDevice};
use volume::OpenOptions;
use volume::luks::Luks;

use super::read_only::{Existing, ReadOnly};
use super::{Cold, Making, Mode, Object, facts, host};
use crate::model::StoreFacts;
use crate::{Error, Result};

/// An encrypted volume that was there before.
#[derive(Debug)]
pub(crate) struct Volume {
    facts: StoreFacts,
    image: PathBuf,
    contents: Arc<Contents>,
    drop_caches: bool,
}

#[derive(Debug)]
struct Contents(Arc<dyn Device>);

impl Volume {
    /// The volume in `image`.
    pub(crate) fn find(image: &Path, target: &str, making: &Making) -> Result<ReadOnly<Volume>> {
        let image = image
            .canonicalize()
            .map_err(|e| Error::io(image, "finding it", e))?;
        let Some(key) = &making.volume_key else {
            return Err(Error::Usage(format!(
                "{target}: nothing was given that opens the volume; measure it with `strongroom bench dd`, or serve it and name its \
                 address"
            )));
        };
        let device = read_only(&image)?;
        let header = key.header.as_deref().map(read_only).transpose()?;
        let said = |source| Error::Volume {
            image: image.clone(),
            source,
        };
        let begins = header.as_ref().unwrap_or(&device);
        // Before anybody is asked for a passphrase.
        if volume::recognise(&**begins).map_err(said)?.is_none() {
            return Err(said(volume::VolumeError::NotAVolume));
        }
        let (credential, options) = (key.ask)(&image)?;
        let options = OpenOptions {
            read_only: true,
            ..options
        };
        let cipher = Luks::read(begins.clone()).ok().and_then(|luks| {
            let segment = luks.dump().segments.into_iter().next();
            segment?.cipher
        });
        let opened =
            volume::open_as_recognised(device, header, &credential, options).map_err(said)?;
        let facts = StoreFacts {
            label: making.label.clone(),
            kind: format!("{} volume, read by this process", opened.format),
            target: target.into(),
            cipher,
            version: Some(env!("CARGO_PKG_VERSION").into()),
            ..facts::of_path(&image)
        };
        Ok(ReadOnly(Volume {
            facts,
            image,
            contents: Arc::new(Contents(opened.device)),
            drop_caches: making.drop_caches,
        }))
    }
}

fn read_only(path: &Path) -> Result<Arc<dyn Device>> {
    match FileDevice::open(path, Access::ReadOnly) {
        Ok(device) => Ok(Arc::new(device)),
        Err(e) => Err(Error::io(path, "opening", e)),
    }
}

impl Existing for Volume {
    const DIRECT: bool = false;

    fn facts(&self) -> &StoreFacts {
        &self.facts
    }

    fn refusal(&self) -> String {
        format!(
            "{}: a volume that was there before is only ever read: writing would destroy what is in it",
            self.facts.target
        )
    }

    fn open(&self, _mode: Mode) -> Result<Arc<dyn Object>> {
        Ok(self.contents.clone())
    }

    fn make_cold(&mut self) -> Result<Cold> {
        let mut cold = Cold::default();
        File::open(&self.image)
            .and_then(|file| host::forget_file(&file))
            .map_err(|e| Error::io(&self.image, "emptying the page cache", e))?;
        cold.done.push("page cache emptied of its image".into());
        if facts::is_fuse(&self.image) {
            super::say_of_server(
                &self.image.display().to_string(),
                self.drop_caches,
                &mut cold,
            );
        }
        super::forget_all(self.drop_caches, &mut cold);
        Ok(cold)
    }

    fn path(&self) -> Option<PathBuf> {
        Some(self.image.clone())
    }

    fn backing(&self) -> Option<PathBuf> {
        Some(self.image.clone())
    }
}

impl Object for Contents {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_at(buf, offset)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_file::Run;
    use crate::store::{Store, VolumeKey};
    use ::volume::Credential;
    use ::volume::luks::{FormatOptions, KdfOptions, format};

    fn making(dir: &Path) -> Making {
        let mut making = Making::new(Run::begin(&dir.join("state")).unwrap(), "a");
        making.volume_key = Some(VolumeKey {
            header: None,
            ask: Arc::new(|_| {
                let key = Credential::Passphrase(b"pass".to_vec().into());
                Ok((key, OpenOptions::default()))
            }),
        });
        making
    }

    #[test]
    fn a_volume_is_read_decrypted_and_its_image_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("v.img");
        let image: Arc<dyn Device> = Arc::new(FileDevice::create(&path, 20 << 20).unwrap());
        let options = FormatOptions {
            kdf: Some(KdfOptions::Pbkdf2 {
                hash: ::volume::luks::Hash::Sha256,
                iterations: 1000,
            }),
            ..FormatOptions::default()
        };
        format(image.clone(), None, &options, b"pass").unwrap();
        drop(image);
        let plain = vec![7; 1 << 20];
        let device: Arc<dyn Device> = Arc::new(FileDevice::open(&path, Access::ReadWrite).unwrap());
        let key = Credential::Passphrase(b"pass".to_vec().into());
        let opened = ::volume::open(device, None, &key, OpenOptions::default()).unwrap();
        opened.write_at(&plain, 4096).unwrap();
        drop(opened);
        let before = std::fs::read(&path).unwrap();

        let making = making(dir.path());
        let mut store = Volume::find(&path, "volume:v.img", &making).unwrap();
        assert_eq!(store.facts().cipher.as_deref(), Some("aes-xts-plain64"));
        store.make_cold().unwrap();
        let object = store.open("x", Mode::Read).unwrap();
        assert_eq!(object.len().unwrap(), 4 << 20);
        let mut got = vec![0; plain.len()];
        object.read_at(&mut got, 4096).unwrap();
        assert!(got == plain);
        assert!(object.write_at(b"theirs", 0).is_err());
        for mode in [Mode::Make, Mode::Write, Mode::WriteDirect, Mode::ReadDirect] {
            let refused = store.open("x", mode).map(drop).unwrap_err();
            assert!(matches!(refused, Error::Refused(_)), "{refused}");
        }
        assert!(store.remove("x").is_err());
        drop(object);
        Box::new(store).close().unwrap();
        assert!(std::fs::read(&path).unwrap() == before);
    }

    #[test]
    fn what_is_no_volume_or_has_no_key_is_refused_before_anybody_is_asked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("noise");
        std::fs::write(&path, vec![1; 1 << 20]).unwrap();
        let mut making = making(dir.path());
        making.volume_key = Some(VolumeKey {
            header: None,
            ask: Arc::new(|_| unreachable!("nobody is asked")),
        });
        let none = Volume::find(&path, "volume:noise", &making).unwrap_err();
        assert!(none.to_string().contains("no encrypted volume"), "{none}");
        making.volume_key = None;
        let none = Volume::find(&path, "volume:noise", &making).unwrap_err();
        assert!(matches!(none, Error::Usage(_)), "{none}");
    }
}
