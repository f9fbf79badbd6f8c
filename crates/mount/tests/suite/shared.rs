//! A shared file system, mounted twice. One room under both mounts replaces the metadata server; its locks are whole files
//! only.
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mount::{Handle, MountOptions};
use parking_lot::{Condvar, Mutex};
use room::{
    Access, Error, FileSystem, Inode, InodeNo, Lock, LockKind, LockOwner, LockTable, NewCredential,
    NewRoom, OpenOptions, Result, Room, Secret,
};
use rustix::fs::{FlockOperation, flock};

use crate::delegate_to_room;

type Held = Arc<(
    Mutex<HashMap<(InodeNo, LockTable), (u8, LockOwner)>>,
    Condvar,
)>;

/// One of two clients of a room.
#[derive(Debug)]
struct Client {
    room: Arc<Room>,
    me: u8,
    held: Held,
    opens: Mutex<HashMap<InodeNo, i64>>,
    flushes: Mutex<u64>,
    /// Requests for locks that wait.
    waiting: Mutex<u64>,
    /// Questions about attributes and extended attributes.
    asked: Mutex<HashMap<InodeNo, u64>>,
}

impl FileSystem for Client {
    delegate_to_room! {
        lookup(parent: InodeNo, name: &[u8]) -> Result<Inode>;
    }

    fn attributes(&self, no: InodeNo) -> Result<Inode> {
        *self.asked.lock().entry(no).or_default() += 1;
        self.room.attributes(no)
    }

    fn xattr(&self, no: InodeNo, name: &[u8]) -> Result<Vec<u8>> {
        *self.asked.lock().entry(no).or_default() += 1;
        self.room.xattr(no, name)
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn open(&self, no: InodeNo, _: Access) -> Result<Inode> {
        *self.opens.lock().entry(no).or_default() += 1;
        self.room.attributes(no)
    }

    fn flush(&self, no: InodeNo) -> Result<()> {
        *self.flushes.lock() += 1;
        // What close(2) is to report.
        match self.room.xattr(no, b"user.refuse") {
            Ok(_) => Err(Error::NoSpace),
            Err(_) => Ok(()),
        }
    }

    fn close(&self, no: InodeNo, _: Access) {
        *self.opens.lock().entry(no).or_default() -= 1;
    }

    fn test_lock(
        &self,
        no: InodeNo,
        table: LockTable,
        owner: LockOwner,
        lock: Lock,
    ) -> Result<Option<Lock>> {
        let held = self.held.0.lock();
        Ok(held
            .get(&(no, table))
            .filter(|by| **by != (self.me, owner))
            .map(|_| Lock {
                kind: LockKind::Exclusive,
                ..lock
            }))
    }

    fn set_lock(
        &self,
        no: InodeNo,
        table: LockTable,
        owner: LockOwner,
        lock: Lock,
        wait: bool,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<()> {
        let mut held = self.held.0.lock();
        let me = (self.me, owner);
        if lock.kind == LockKind::Unlock {
            if held.get(&(no, table)) == Some(&me) {
                held.remove(&(no, table));
                self.held.1.notify_all();
            }
            return Ok(());
        }
        let is_others = |held: &HashMap<_, _>| held.get(&(no, table)).is_some_and(|by| *by != me);
        if is_others(&held) && !wait {
            return Err(Error::WouldBlock);
        }
        *self.waiting.lock() += 1;
        let mut taken = Ok(());
        while is_others(&held) && taken.is_ok() {
            if cancelled() {
                taken = Err(Error::Interrupted);
            }
            self.held.1.wait_for(&mut held, Duration::from_millis(20));
        }
        *self.waiting.lock() -= 1;
        if taken.is_ok() {
            held.insert((no, table), me);
        }
        taken
    }
}

struct Two {
    clients: Vec<Arc<Client>>,
    mounts: Vec<(Handle, Option<JoinHandle<()>>)>,
    /// Removed last: the room's closing writes there.
    dir: tempfile::TempDir,
}

impl Two {
    fn new() -> Option<Self> {
        if !Path::new("/dev/fuse").exists() {
            eprintln!("skipped: there is no /dev/fuse");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let credential = NewCredential::RawKey(Secret::from(vec![7; 32]));
        let new = NewRoom {
            open: OpenOptions::with_state_dir(dir.path().join("state")),
            ..NewRoom::with_credential(credential)
        };
        let room = Arc::new(Room::create(&dir.path().join("room"), new).unwrap());
        let held = Held::default();
        let mut two = Self {
            dir,
            clients: Vec::new(),
            mounts: Vec::new(),
        };
        for me in 0..2 {
            let client = Arc::new(Client {
                room: room.clone(),
                me,
                held: held.clone(),
                opens: Mutex::default(),
                flushes: Mutex::default(),
                waiting: Mutex::default(),
                asked: Mutex::default(),
            });
            let at = two.at(me.into(), "");
            std::fs::create_dir(&at).unwrap();
            let mounted = mount::mount(client.clone(), &at, &MountOptions::default()).unwrap();
            let handle = mounted.handle();
            let serving = std::thread::spawn(move || mounted.wait().unwrap());
            two.clients.push(client);
            two.mounts.push((handle, Some(serving)));
        }
        Some(two)
    }

    fn at(&self, which: usize, name: &str) -> PathBuf {
        self.dir.path().join(format!("mnt{which}")).join(name)
    }
}

impl Drop for Two {
    fn drop(&mut self) {
        for which in 0..self.mounts.len() {
            let (handle, serving) = &mut self.mounts[which];
            let gone = (0..100).any(|_| {
                let done = handle.unmount().is_ok();
                if !done {
                    std::thread::sleep(Duration::from_millis(20));
                }
                done
            });
            let serving = serving.take();
            if gone {
                serving.unwrap().join().unwrap();
            } else {
                let at = self.at(which, "");
                let _ = Command::new("umount").arg("-l").arg(at).status();
            }
        }
    }
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < until, "{what} did not happen in 60 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_one_mount_closed_the_other_sees_at_its_next_open() {
    let Some(two) = Two::new() else { return };
    let (a, b) = (two.at(0, "f"), two.at(1, "f"));
    for round in 0..50_u32 {
        let text = format!("round {round} {}", "x".repeat(round as usize * 300));
        std::fs::write(&a, &text).unwrap();
        assert_eq!(std::fs::read_to_string(&b).unwrap(), text);
        // Same length, other bytes.
        let text = text.replace('x', "y").replace("round", "ROUND");
        std::fs::write(&b, &text).unwrap();
        assert_eq!(std::fs::read_to_string(&a).unwrap(), text);
    }
    std::fs::rename(&a, two.at(0, "g")).unwrap();
    assert!(!b.exists());
    assert!(two.at(1, "g").exists());
    std::fs::remove_file(two.at(1, "g")).unwrap();
    assert!(!two.at(0, "g").exists());
}

#[test]
fn every_open_is_closed_and_creating_opens() {
    let Some(two) = Two::new() else { return };
    let file = File::create(two.at(0, "f")).unwrap();
    let no = InodeNo(file.metadata().unwrap().ino());
    assert_eq!(two.clients[0].opens.lock()[&no], 1);
    let again = File::open(two.at(0, "f")).unwrap();
    assert_eq!(two.clients[0].opens.lock()[&no], 2);
    drop((file, again));
    wait_for("closing", || two.clients[0].opens.lock()[&no] == 0);
    assert!(*two.clients[0].flushes.lock() >= 2);
    let exclusive = File::options()
        .write(true)
        .create_new(true)
        .open(two.at(0, "f"));
    assert_eq!(
        exclusive.unwrap_err().kind(),
        std::io::ErrorKind::AlreadyExists
    );
}

#[test]
fn a_new_file_is_written_without_a_question_about_it() {
    let Some(two) = Two::new() else { return };
    let client = &two.clients[0];
    let mut files = 0;
    // Where this machine is slow, what the creation answered may be too old at the write.
    wait_for("a file that was created and written at once", || {
        files += 1;
        let name = format!("f{files}");
        std::fs::write(two.at(0, &name), "text").unwrap();
        let no = client.room.lookup(InodeNo::ROOT, name.as_bytes());
        !client.asked.lock().contains_key(&no.unwrap().no)
    });
}

#[test]
fn capabilities_of_a_new_file_are_seen_and_end_with_a_write() {
    use rustix::fs::{XattrFlags, fgetxattr, fsetxattr};
    const NAME: &str = "security.capability";
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root sets file capabilities");
        return;
    }
    let Some(two) = Two::new() else { return };
    // Revision 2, effective: CAP_NET_BIND_SERVICE.
    let mut value = vec![1, 0, 0, 2, 0, 4, 0, 0];
    value.resize(20, 0);
    let length = |file: &File| fgetxattr(file, NAME, &mut [0_u8; 64][..]);
    let mut a = File::create(two.at(0, "f")).unwrap();
    // The kernel asks, and there is none.
    a.write_all(b"x").unwrap();
    fsetxattr(&a, NAME, &value, XattrFlags::empty()).unwrap();
    assert_eq!(length(&a), Ok(20), "set by the same mount");
    let b = File::options().write(true).open(two.at(1, "f")).unwrap();
    assert_eq!(length(&b), Ok(20), "known to the other one's open");
    a.write_all(b"x").unwrap();
    assert_eq!(length(&a), Err(rustix::io::Errno::NODATA));

    // Set by the other mount: known as soon as its attributes are.
    let mut a = File::create(two.at(0, "g")).unwrap();
    a.write_all(b"x").unwrap();
    let b = File::options().write(true).open(two.at(1, "g")).unwrap();
    fsetxattr(&b, NAME, &value, XattrFlags::empty()).unwrap();
    wait_for("seeing the other's capabilities", || length(&a) == Ok(20));
    // Its kernel asks again when it has new attributes.
    a.metadata().unwrap();
    a.write_all(b"x").unwrap();
    wait_for("the end of the other's capabilities", || {
        length(&b) == Err(rustix::io::Errno::NODATA)
    });
}

#[test]
fn what_a_flush_refuses_close_reports() {
    let Some(two) = Two::new() else { return };
    let mut file = File::create(two.at(0, "f")).unwrap();
    file.write_all(b"x").unwrap();
    rustix::fs::fsetxattr(&file, "user.refuse", b"1", rustix::fs::XattrFlags::empty()).unwrap();
    // `dd` says so when close fails.
    let out = Command::new("dd")
        .args(["if=/dev/zero", "bs=1", "count=1", "conv=notrunc"])
        .arg(format!("of={}", two.at(0, "f").display()))
        .output()
        .unwrap();
    assert!(!out.status.success());
    assert!(String::from_utf8_lossy(&out.stderr).contains("No space left"));
}

#[test]
fn a_lock_of_one_mount_keeps_the_other_out_until_it_is_released() {
    let Some(two) = Two::new() else { return };
    let a = File::create(two.at(0, "f")).unwrap();
    let b = File::open(two.at(1, "f")).unwrap();
    flock(&a, FlockOperation::LockExclusive).unwrap();
    let refused = flock(&b, FlockOperation::NonBlockingLockExclusive);
    assert_eq!(refused.unwrap_err(), rustix::io::Errno::WOULDBLOCK);
    let waiting = std::thread::spawn(move || {
        flock(&b, FlockOperation::LockExclusive).unwrap();
        b
    });
    std::thread::sleep(Duration::from_millis(100));
    assert!(!waiting.is_finished());
    // The last close of the description gives it back.
    drop(a);
    let b = waiting.join().unwrap();
    flock(&b, FlockOperation::Unlock).unwrap();
    assert!(two.clients[0].held.0.lock().is_empty());
}

#[test]
fn a_lock_of_fcntl_ends_with_any_close_of_its_process() {
    let Some(two) = Two::new() else { return };
    std::fs::write(two.at(0, "f"), "text").unwrap();
    let script = "import fcntl,os,sys\n\
        f=os.open(sys.argv[1],os.O_RDWR)\n\
        fcntl.lockf(f,fcntl.LOCK_EX)\n\
        print('held',flush=True); sys.stdin.readline()\n\
        os.close(os.open(sys.argv[1],os.O_RDONLY))\n\
        print('closed',flush=True); sys.stdin.readline()\n";
    let mut holder = Command::new("python3")
        .args(["-c", script])
        .arg(two.at(0, "f"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = holder.stdin.take().unwrap();
    let mut output = holder.stdout.take().unwrap();
    let mut line = [0; 5];
    output.read_exact(&mut line).unwrap();
    let b = File::options()
        .read(true)
        .write(true)
        .open(two.at(1, "f"))
        .unwrap();
    let tries = || rustix::fs::fcntl_lock(&b, FlockOperation::NonBlockingLockExclusive);
    assert!(tries().is_err(), "somebody else has it");
    input.write_all(b"\n").unwrap();
    let mut line = [0; 7];
    output.read_exact(&mut line).unwrap();
    tries().unwrap();
    drop(input);
    holder.wait().unwrap();
}

/// A Python program that goes on by one step for each line that it gets, and says when it has done one.
/// `ofd` takes a lock of an open file description (`F_OFD_SETLKW`).
struct Program {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    /// `step()` in the script ends a step and waits for the next.
    fn start(script: &str, file: &Path) -> Self {
        let frame = "import fcntl,os,struct,sys,threading\n\
            def step(): print('done',flush=True); sys.stdin.readline()\n\
            def ofd(fd): fcntl.fcntl(fd,38,struct.pack('hhqqi4x',fcntl.F_WRLCK,0,0,0,0))\n";
        let mut child = Command::new("python3")
            .args(["-c", &format!("{frame}{script}")])
            .arg(file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    fn ended_step(&mut self) {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert_eq!(line, "done\n");
    }

    fn next_step(&mut self) {
        self.input.write_all(b"\n").unwrap();
        self.ended_step();
    }

    fn end(mut self) {
        drop(self.input);
        assert!(self.child.wait().unwrap().success());
    }
}

/// The kernel sends no unlock for it, and the file stays open elsewhere on the machine: the lock stayed for as long as that.
#[test]
fn a_lock_of_an_open_file_description_ends_with_its_last_descriptor() {
    let Some(two) = Two::new() else { return };
    let _open = File::create(two.at(0, "f")).unwrap();
    let script = "f=os.open(sys.argv[1],os.O_RDWR); g=os.dup(f); ofd(f); step()\n\
        os.close(f)\n\
        if os.fork()==0: os.close(g); os._exit(0)\n\
        os.wait(); step()\n\
        os.close(g); step()\n";
    let mut program = Program::start(script, &two.at(0, "f"));
    let held = || two.clients[0].held.0.lock().len();
    program.ended_step();
    assert_eq!(held(), 1);
    program.next_step();
    assert_eq!(held(), 1, "the other descriptor has it");
    program.next_step();
    wait_for("the end of the lock", || held() == 0);
    program.end();
}

#[test]
fn a_lock_of_an_open_file_description_is_had_again_after_a_close() {
    let Some(two) = Two::new() else { return };
    let _open = File::create(two.at(0, "f")).unwrap();
    // Its second owner may get the number of the first, of which the kernel does not wait for the end.
    let script = "import signal\n\
        for n in range(200):\n  \
          f=os.open(sys.argv[1],os.O_RDWR); signal.alarm(60); ofd(f); step()\n  \
          os.close(f)\n\
        step()\n";
    let mut program = Program::start(script, &two.at(0, "f"));
    let held = || two.clients[0].held.0.lock().len();
    program.ended_step();
    for _ in 1..200 {
        assert_eq!(held(), 1);
        program.next_step();
    }
    program.next_step();
    wait_for("the end of the lock", || held() == 0);
    program.end();
}

#[test]
fn a_lock_of_a_process_outlives_the_descriptors_of_others() {
    let Some(two) = Two::new() else { return };
    let _open = File::create(two.at(0, "f")).unwrap();
    let script = "f=os.open(sys.argv[1],os.O_RDWR); fcntl.lockf(f,fcntl.LOCK_EX)\n\
        if os.fork()==0: os.close(f); os._exit(0)\n\
        os.wait(); step()\n\
        g=os.dup(f); os.close(g); step()\n\
        fcntl.lockf(f,fcntl.LOCK_EX); step()\n";
    let mut program = Program::start(script, &two.at(0, "f"));
    let held = || two.clients[0].held.0.lock().len();
    program.ended_step();
    assert_eq!(held(), 1, "a fork has its own");
    program.next_step();
    assert_eq!(held(), 0, "any descriptor of the process ends it");
    program.next_step();
    assert_eq!(held(), 1);
    program.end();
    wait_for("the end of the lock", || held() == 0);
}

/// The close of another descriptor, while the lock was waited for, made the mount forget that there was one to release.
#[test]
fn a_lock_granted_after_another_descriptor_was_closed_ends_with_its_process() {
    let Some(two) = Two::new() else { return };
    let _open = File::create(two.at(0, "f")).unwrap();
    let other = File::options().write(true).open(two.at(1, "f")).unwrap();
    rustix::fs::fcntl_lock(&other, FlockOperation::LockExclusive).unwrap();
    let script = "f,g=[os.open(sys.argv[1],os.O_RDWR) for _ in range(2)]\n\
        wait=threading.Thread(target=lambda: fcntl.lockf(f,fcntl.LOCK_EX)); wait.start(); step()\n\
        os.close(g); step()\n\
        wait.join(); step()\n";
    let mut program = Program::start(script, &two.at(0, "f"));
    program.ended_step();
    wait_for("the wait", || *two.clients[0].waiting.lock() == 1);
    program.next_step();
    rustix::fs::fcntl_lock(&other, FlockOperation::Unlock).unwrap();
    program.next_step();
    let held = || two.clients[0].held.0.lock().len();
    assert_eq!(held(), 1);
    program.end();
    wait_for("the end of the lock", || held() == 0);
}

#[test]
fn a_wait_for_a_lock_can_be_interrupted_and_other_requests_go_on_meanwhile() {
    let Some(two) = Two::new() else { return };
    let a = File::create(two.at(0, "f")).unwrap();
    flock(&a, FlockOperation::LockExclusive).unwrap();
    // More than there are threads that serve requests.
    let mut waiting: Vec<_> = (0..20)
        .map(|_| {
            Command::new("flock")
                .arg(two.at(1, "f"))
                .arg("true")
                .spawn()
                .unwrap()
        })
        .collect();
    std::thread::sleep(Duration::from_millis(200));
    std::fs::write(two.at(1, "g"), "goes on").unwrap();
    for child in &mut waiting {
        assert!(child.try_wait().unwrap().is_none(), "it waits");
        let pid = rustix::process::Pid::from_child(child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }
    for mut child in waiting {
        wait_for("the end of who waited", || {
            child.try_wait().unwrap().is_some()
        });
    }
    drop(a);
    let status = Command::new("flock")
        .arg(two.at(1, "f"))
        .arg("true")
        .status();
    assert!(status.unwrap().success());
}

#[test]
fn under_a_lock_is_read_what_the_last_holder_wrote() {
    let Some(two) = Two::new() else { return };
    std::fs::write(two.at(0, "n"), format!("{:8}", 0)).unwrap();
    let count = |path: PathBuf| {
        std::thread::spawn(move || {
            // Open all the time: only the lock says that there is something new.
            let mut file = File::options().read(true).write(true).open(path).unwrap();
            for _ in 0..100 {
                flock(&file, FlockOperation::LockExclusive).unwrap();
                let mut text = String::new();
                file.seek(SeekFrom::Start(0)).unwrap();
                file.read_to_string(&mut text).unwrap();
                let n: u32 = text.trim().parse().unwrap();
                file.seek(SeekFrom::Start(0)).unwrap();
                write!(file, "{:8}", n + 1).unwrap();
                flock(&file, FlockOperation::Unlock).unwrap();
            }
        })
    };
    let both = [count(two.at(0, "n")), count(two.at(1, "n"))];
    for one in both {
        one.join().unwrap();
    }
    let text = std::fs::read_to_string(two.at(0, "n")).unwrap();
    assert_eq!(text.trim(), "200");
}

/// A limit on dirty pages that is for unshared mounts went to files in the working directory, which is `/` for a daemon.
#[test]
fn a_write_to_a_shared_mount_leaves_the_working_directory_alone() {
    let Some(two) = Two::new() else { return };
    std::fs::write(two.at(0, "file"), "some text").unwrap();
    for name in ["max_bytes", "max_ratio", "strict_limit"] {
        assert!(!Path::new(name).exists(), "{name} was created here");
    }
}
