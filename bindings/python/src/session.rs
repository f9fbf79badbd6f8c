//! An open room, by path.

use std::path::{Path, PathBuf};

use embed::{Entry, OpenMode, OpenOptions, RenameMode, SetAttr, SetTime, XattrMode};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::argument::{Cost, Name, Opener, RoomPath, SecretBytes, cost, time};
use crate::attributes::Attributes;
use crate::buffer::Source;
use crate::error::{About, call, name};
use crate::file::File;
use crate::snapshots::{
    PolicyFields, PolicyReportFields, SnapshotFields, fields, kind_word, policy, policy_fields,
    report_fields, word,
};

/// An open room. Use strongroom.Room.
#[pyclass(frozen, module = "strongroom._strongroom")]
pub(crate) struct Session(embed::Session);

impl Session {
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        about: About<'_>,
        what: impl FnOnce(&embed::Session) -> embed::Result<T> + Send,
    ) -> PyResult<T> {
        call(py, about, || what(&self.0))
    }

    fn at<T: Send>(
        &self,
        py: Python<'_>,
        path: &RoomPath,
        what: impl FnOnce(&embed::Session) -> embed::Result<T> + Send,
    ) -> PyResult<T> {
        self.run(py, About::Path(&path.0), what)
    }

    fn entries(&self, py: Python<'_>, path: &RoomPath) -> PyResult<Vec<Entry>> {
        self.at(py, path, |session| session.list(path.path()))
    }
}

#[pymethods]
impl Session {
    /// Open the room in a directory.
    #[staticmethod]
    #[pyo3(signature = (location, *, passphrase = None, key_file = None, key = None, read_only = false, accept_rollback = false,
        state_dir = None, commit_interval_ms = 5000))]
    #[expect(clippy::too_many_arguments, reason = "Python's keyword arguments")]
    fn open(
        py: Python<'_>,
        location: PathBuf,
        passphrase: Option<SecretBytes>,
        key_file: Option<PathBuf>,
        key: Option<SecretBytes>,
        read_only: bool,
        accept_rollback: bool,
        state_dir: Option<PathBuf>,
        commit_interval_ms: u64,
    ) -> PyResult<Self> {
        let opener = Opener::new(passphrase, key_file, key)?;
        let options = OpenOptions {
            read_only,
            accept_rollback,
            state_dir,
            commit_interval_ms,
            ..OpenOptions::default()
        };
        let key = opener.key()?;
        let about = location.as_os_str().as_encoded_bytes();
        call(py, About::Path(about), || {
            embed::Session::open(&location, key, options)
        })
        .map(Self)
    }

    /// Create a room in a directory that does not exist or is empty, and open it.
    #[staticmethod]
    #[pyo3(signature = (location, *, passphrase = None, key_file = None, key = None, cost = None, state_dir = None,
        commit_interval_ms = 5000))]
    #[expect(clippy::too_many_arguments, reason = "Python's keyword arguments")]
    fn create(
        py: Python<'_>,
        location: PathBuf,
        passphrase: Option<SecretBytes>,
        key_file: Option<PathBuf>,
        key: Option<SecretBytes>,
        cost: Option<Cost>,
        state_dir: Option<PathBuf>,
        commit_interval_ms: u64,
    ) -> PyResult<Self> {
        let opener = Opener::new(passphrase, key_file, key)?;
        let options = OpenOptions {
            state_dir,
            commit_interval_ms,
            ..OpenOptions::default()
        };
        let (key, cost) = (opener.key()?, self::cost(cost));
        let about = location.as_os_str().as_encoded_bytes();
        call(py, About::Path(about), || {
            embed::Session::create(&location, key, cost, options)
        })
        .map(Self)
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, About::Nothing, |session| session.close())
    }

    fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, About::Nothing, |session| session.abandon())
    }

    fn is_open(&self, py: Python<'_>) -> bool {
        py.detach(|| self.0.is_open())
    }

    fn is_read_only(&self, py: Python<'_>) -> PyResult<bool> {
        self.run(py, About::Nothing, |session| session.is_read_only())
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, About::Nothing, |session| session.sync())
    }

    fn begin(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, About::Nothing, |session| session.begin())
    }

    fn complete(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, About::Nothing, |session| session.complete())
    }

    fn in_transaction(&self, py: Python<'_>) -> PyResult<bool> {
        self.run(py, About::Nothing, |session| session.in_transaction())
    }

    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let info = self.run(py, About::Nothing, |session| session.info())?;
        let dict = PyDict::new(py);
        dict.set_item("id", info.id.to_string())?;
        dict.set_item("format", info.format)?;
        dict.set_item("suite", info.suite.to_string())?;
        dict.set_item("generation", info.generation)?;
        dict.set_item("key_epoch", info.key_epoch)?;
        dict.set_item("rekeying", info.rekeying)?;
        dict.set_item("created", info.created)?;
        dict.set_item("slots", info.slots)?;
        dict.set_item("segments", info.segments)?;
        Ok(dict)
    }

    fn space<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let space = self.run(py, About::Nothing, |session| session.space())?;
        let dict = PyDict::new(py);
        dict.set_item("total", space.total)?;
        dict.set_item("free", space.free)?;
        dict.set_item("available", space.available)?;
        dict.set_item("live", space.live)?;
        dict.set_item("stored", space.stored)?;
        dict.set_item("inodes", space.inodes)?;
        Ok(dict)
    }

    #[pyo3(signature = (path, *, read, write, append, create, create_new, truncate, mode))]
    #[expect(clippy::too_many_arguments, reason = "Python's keyword arguments")]
    fn open_file(
        &self,
        py: Python<'_>,
        path: RoomPath,
        read: bool,
        write: bool,
        append: bool,
        create: bool,
        create_new: bool,
        truncate: bool,
        mode: u16,
    ) -> PyResult<File> {
        let mode = OpenMode {
            read,
            write,
            append,
            create,
            create_new,
            truncate,
            mode,
        };
        let file = self.at(py, &path, |session| session.open_file(path.path(), mode))?;
        Ok(File::new(file, path.0))
    }

    fn stat(&self, py: Python<'_>, path: RoomPath, follow: bool) -> PyResult<Attributes> {
        self.at(py, &path, |session| session.stat(path.path(), follow))
            .map(Attributes)
    }

    fn names<'py>(&self, py: Python<'py>, path: RoomPath) -> PyResult<Bound<'py, PyList>> {
        let all = PyList::empty(py);
        for entry in self.entries(py, &path)? {
            all.append(name(py, &entry.name)?)?;
        }
        Ok(all)
    }

    fn list<'py>(&self, py: Python<'py>, path: RoomPath) -> PyResult<Bound<'py, PyList>> {
        let all = PyList::empty(py);
        for entry in self.entries(py, &path)? {
            all.append((name(py, &entry.name)?, Attributes(entry.inode)))?;
        }
        Ok(all)
    }

    fn make_dir(&self, py: Python<'_>, path: RoomPath, mode: u16) -> PyResult<()> {
        self.at(py, &path, |session| session.make_dir(path.path(), mode))
    }

    fn make_dirs(&self, py: Python<'_>, path: RoomPath) -> PyResult<()> {
        self.at(py, &path, |session| session.make_dirs(path.path()))
    }

    fn remove_file(&self, py: Python<'_>, path: RoomPath) -> PyResult<()> {
        self.at(py, &path, |session| session.remove_file(path.path()))
    }

    fn remove_dir(&self, py: Python<'_>, path: RoomPath) -> PyResult<()> {
        self.at(py, &path, |session| session.remove_dir(path.path()))
    }

    fn rename(&self, py: Python<'_>, from: RoomPath, to: RoomPath, how: &str) -> PyResult<()> {
        let how = match how {
            "replace" => RenameMode::Replace,
            "no_replace" => RenameMode::NoReplace,
            "exchange" => RenameMode::Exchange,
            _ => return Err(PyValueError::new_err("replace, no_replace or exchange")),
        };
        self.run(py, About::Paths(&from.0, &to.0), |session| {
            session.rename(from.path(), to.path(), how)
        })
    }

    fn link(&self, py: Python<'_>, existing: RoomPath, new: RoomPath) -> PyResult<()> {
        self.run(py, About::Paths(&existing.0, &new.0), |session| {
            session.link(existing.path(), new.path())
        })
    }

    fn symlink(&self, py: Python<'_>, target: RoomPath, path: RoomPath) -> PyResult<()> {
        self.at(py, &path, |session| session.symlink(&target.0, path.path()))
    }

    fn read_link<'py>(&self, py: Python<'py>, path: RoomPath) -> PyResult<Bound<'py, PyAny>> {
        let target = self.at(py, &path, |session| session.read_link(path.path()))?;
        name(py, &target)
    }

    #[pyo3(signature = (path, *, mode = None, uid = None, gid = None, size = None, atime_ns = None, mtime_ns = None, now = false,
        follow = true))]
    #[expect(clippy::too_many_arguments, reason = "Python's keyword arguments")]
    fn change(
        &self,
        py: Python<'_>,
        path: RoomPath,
        mode: Option<u16>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime_ns: Option<i64>,
        mtime_ns: Option<i64>,
        now: bool,
        follow: bool,
    ) -> PyResult<()> {
        let moment = |ns: Option<i64>| match now {
            true => Some(SetTime::Now),
            false => ns.map(|ns| SetTime::At(time(ns))),
        };
        let set = SetAttr {
            mode,
            uid,
            gid,
            size,
            atime: moment(atime_ns),
            mtime: moment(mtime_ns),
            ..SetAttr::default()
        };
        self.at(py, &path, |session| {
            session.set_attributes(path.path(), &set, follow).map(drop)
        })
    }

    fn xattr<'py>(
        &self,
        py: Python<'py>,
        path: RoomPath,
        name: Name,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let value = self.at(py, &path, |session| session.xattr(path.path(), &name.0))?;
        Ok(PyBytes::new(py, &value))
    }

    fn set_xattr(
        &self,
        py: Python<'_>,
        path: RoomPath,
        name: Name,
        value: Source,
        how: &str,
    ) -> PyResult<()> {
        let how = match how {
            "any" => XattrMode::Any,
            "create" => XattrMode::Create,
            "replace" => XattrMode::Replace,
            _ => return Err(PyValueError::new_err("any, create or replace")),
        };
        let value = value.bytes();
        self.at(py, &path, |session| {
            session.set_xattr(path.path(), &name.0, value, how)
        })
    }

    fn remove_xattr(&self, py: Python<'_>, path: RoomPath, name: Name) -> PyResult<()> {
        self.at(py, &path, |session| {
            session.remove_xattr(path.path(), &name.0)
        })
    }

    fn xattr_names<'py>(&self, py: Python<'py>, path: RoomPath) -> PyResult<Bound<'py, PyList>> {
        let all = PyList::empty(py);
        for one in self.at(py, &path, |session| session.xattr_names(path.path()))? {
            all.append(name(py, &one)?)?;
        }
        Ok(all)
    }

    /// Number, kind, label, seconds since 1970, and the cost where there is one.
    fn slots<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let all = PyList::empty(py);
        for slot in self.run(py, About::Nothing, |session| session.slots())? {
            let cost = slot
                .cost
                .map(|cost| (cost.memory_kib, cost.passes, cost.lanes));
            all.append((
                slot.id,
                slot.kind.to_string(),
                slot.label,
                slot.created_unix_s,
                cost,
            ))?;
        }
        Ok(all)
    }

    #[pyo3(signature = (*, passphrase = None, key_file = None, key = None, cost = None, label = ""))]
    fn add_key(
        &self,
        py: Python<'_>,
        passphrase: Option<SecretBytes>,
        key_file: Option<PathBuf>,
        key: Option<SecretBytes>,
        cost: Option<Cost>,
        label: &str,
    ) -> PyResult<u32> {
        let key = Opener::new(passphrase, key_file, key)?.key()?;
        let cost = self::cost(cost);
        self.run(py, About::Nothing, |session| {
            session.add_key(key, cost, label)
        })
    }

    #[pyo3(signature = (slot, *, passphrase = None, key_file = None, key = None, cost = None))]
    fn change_key(
        &self,
        py: Python<'_>,
        slot: u32,
        passphrase: Option<SecretBytes>,
        key_file: Option<PathBuf>,
        key: Option<SecretBytes>,
        cost: Option<Cost>,
    ) -> PyResult<()> {
        let key = Opener::new(passphrase, key_file, key)?.key()?;
        let cost = self::cost(cost);
        self.run(py, About::Nothing, |session| {
            session.change_key(slot, key, cost)
        })
    }

    fn remove_key(&self, py: Python<'_>, slot: u32) -> PyResult<()> {
        self.run(py, About::Nothing, |session| session.remove_key(slot))
    }

    fn create_snapshot(&self, py: Python<'_>, name: &str) -> PyResult<SnapshotFields> {
        let about = About::Path(name.as_bytes());
        self.run(py, about, |session| session.create_snapshot(name))
            .map(fields)
    }

    fn snapshots(&self, py: Python<'_>) -> PyResult<Vec<SnapshotFields>> {
        let all = self.run(py, About::Nothing, |session| session.snapshots())?;
        Ok(all.into_iter().map(fields).collect())
    }

    fn held_by_snapshots(&self, py: Python<'_>) -> PyResult<u64> {
        self.run(py, About::Nothing, |session| session.held_by_snapshots())
    }

    fn rename_snapshot(&self, py: Python<'_>, from: &str, to: &str) -> PyResult<()> {
        let about = About::Paths(from.as_bytes(), to.as_bytes());
        self.run(py, about, |session| session.rename_snapshot(from, to))
    }

    fn delete_snapshot(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let about = About::Path(name.as_bytes());
        self.run(py, about, |session| session.delete_snapshot(name))
    }

    fn open_snapshot(&self, py: Python<'_>, name: &str) -> PyResult<Self> {
        let about = About::Path(name.as_bytes());
        self.run(py, about, |session| session.open_snapshot(name))
            .map(Self)
    }

    /// What, kind of file, path, earlier path, and bytes before and after.
    #[pyo3(signature = (earlier, later = None))]
    fn diff_snapshots<'py>(
        &self,
        py: Python<'py>,
        earlier: &str,
        later: Option<&str>,
    ) -> PyResult<Bound<'py, PyList>> {
        let about = About::Path(earlier.as_bytes());
        let changes = self.run(py, about, |session| session.diff_snapshots(earlier, later))?;
        let all = PyList::empty(py);
        for change in changes {
            let (what, from) = word(&change);
            let path = |path: &Path| name(py, path.as_os_str().as_encoded_bytes());
            all.append((
                what,
                kind_word(change.kind),
                path(&change.path)?,
                from.map(path).transpose()?,
                change.before,
                change.after,
            ))?;
        }
        Ok(all)
    }

    /// Files and bytes.
    #[pyo3(signature = (name, path, to = None))]
    fn restore_snapshot(
        &self,
        py: Python<'_>,
        name: &str,
        path: RoomPath,
        to: Option<RoomPath>,
    ) -> PyResult<(u64, u64)> {
        let to = to.as_ref().map(RoomPath::path);
        let done = self.at(py, &path, |session| {
            session.restore_snapshot(name, path.path(), to)
        })?;
        Ok((done.files, done.bytes))
    }

    fn snapshot_policy(&self, py: Python<'_>) -> PyResult<Option<PolicyFields>> {
        let policy = self.run(py, About::Nothing, |session| session.snapshot_policy())?;
        Ok(policy.map(policy_fields))
    }

    fn set_snapshot_policy(&self, py: Python<'_>, fields: PolicyFields) -> PyResult<()> {
        let policy = policy(fields);
        self.run(py, About::Nothing, |session| {
            session.set_snapshot_policy(&policy)
        })
    }

    fn clear_snapshot_policy(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, About::Nothing, |session| {
            session.clear_snapshot_policy()
        })
    }

    /// The snapshot that was created, those that were deleted, and seconds since 1970 at which the next one is due.
    fn apply_snapshot_policy(&self, py: Python<'_>) -> PyResult<PolicyReportFields> {
        let report = self.run(py, About::Nothing, |session| {
            session.apply_snapshot_policy()
        })?;
        Ok(report_fields(report))
    }

    fn prune_snapshots(&self, py: Python<'_>, dry_run: bool) -> PyResult<Vec<SnapshotFields>> {
        let gone = self.run(py, About::Nothing, |session| {
            session.prune_snapshots(dry_run)
        })?;
        Ok(gone.into_iter().map(fields).collect())
    }
}
