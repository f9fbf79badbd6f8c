//! How fast segments are written and read beside plain files, in the same run and on the same disk.
//!
//! `cargo run --release -p strongroom-segments --example throughput -- [DIRECTORY] [MIB] [ROUNDS]`
//!
//! Plain file and store take turns; each row prints the medians over the rounds and the median of the rounds' ratios
//! (above 1 the store is faster), and the processor time of one operation, which other work on the machine blurs less
//! than it does the rates. Cold reads drop the files from the page cache before.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use rustix::fs::{Advice, fadvise};
use rustix::time::{ClockId, clock_gettime};
use seal::{MasterKey, RoomId, Suite};
use storage::HostStorage;
use strongroom_segments::{
    BLOCK_LEN, BlockRange, DirStore, Keyring, SEGMENTS_DIR, Sealed, SegmentNo,
};

const MIB: usize = 1 << 20;

type Failure = Box<dyn std::error::Error>;

/// One way of keeping data, so that both are driven by the same loops.
trait Subject {
    /// Appends one piece of the length the subject was made with.
    fn append(&mut self, piece: &[u8]) -> Result<(), Failure>;
    fn flush(&mut self) -> Result<(), Failure>;
    /// Reads the piece of this index.
    fn read(&mut self, index: usize, out: &mut [u8]) -> Result<(), Failure>;
    fn files(&self) -> Result<Vec<PathBuf>, Failure>;
}

struct Plain {
    file: File,
    path: PathBuf,
    len: u64,
}

impl Plain {
    fn new(dir: &Path) -> Result<Self, Failure> {
        let path = dir.join("plain");
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)?;
        Ok(Self { file, path, len: 0 })
    }
}

impl Subject for Plain {
    fn append(&mut self, piece: &[u8]) -> Result<(), Failure> {
        self.file.write_all_at(piece, self.len)?;
        self.len += piece.len() as u64;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.file.sync_data()?)
    }

    fn read(&mut self, index: usize, out: &mut [u8]) -> Result<(), Failure> {
        Ok(self.file.read_exact_at(out, (index * out.len()) as u64)?)
    }

    fn files(&self) -> Result<Vec<PathBuf>, Failure> {
        Ok(vec![self.path.clone()])
    }
}

struct Store {
    store: DirStore,
    dir: PathBuf,
    pieces: Vec<Sealed>,
}

impl Store {
    fn new(dir: &Path, suite: Suite) -> Result<Self, Failure> {
        let (room, master) = (RoomId::random(), MasterKey::random());
        let keyring = Keyring::new(
            suite,
            room,
            1,
            master.data_key(&room),
            master.segment_header_key(&room),
        );
        let store = DirStore::open(
            Arc::new(HostStorage::open(dir)?),
            keyring,
            Vec::new(),
            SegmentNo(1),
        )?;
        Ok(Self {
            store,
            dir: dir.join(SEGMENTS_DIR),
            pieces: Vec::new(),
        })
    }
}

impl Subject for Store {
    fn append(&mut self, piece: &[u8]) -> Result<(), Failure> {
        self.pieces.push(self.store.append(piece)?);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.store.flush()?)
    }

    fn read(&mut self, index: usize, out: &mut [u8]) -> Result<(), Failure> {
        let piece = &self.pieces[index];
        let range = BlockRange {
            segment: piece.segment,
            position: piece.position,
            blocks: piece.blocks,
        };
        Ok(self.store.read(range, piece.proofs(), out)?)
    }

    fn files(&self) -> Result<Vec<PathBuf>, Failure> {
        std::fs::read_dir(&self.dir)?
            .map(|entry| Ok(entry?.path()))
            .collect()
    }
}

/// What a row of a round took, in seconds: by the clock, and of the processor.
type Took = (f64, f64);

/// The rows of a round.
const ROWS: [&str; 8] = [
    "1 MiB writes, flush at the end",
    "1 MiB reads, warm",
    "1 MiB reads, cold",
    "4 KiB writes, flush at the end",
    "4 KiB random reads, warm",
    "4 KiB random reads, cold",
    "4 KiB writes, flush each",
    "1 MiB writes, flush each",
];

struct Sizes {
    large: usize,
    small: usize,
    cold: usize,
    synced: usize,
}

fn drop_cache(subject: &dyn Subject) -> Result<(), Failure> {
    for path in subject.files()? {
        fadvise(File::open(path)?, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

fn timed(work: impl FnOnce() -> Result<(), Failure>) -> Result<Took, Failure> {
    let processor = || {
        let now = clock_gettime(ClockId::ProcessCPUTime);
        now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
    };
    let (start, before) = (Instant::now(), processor());
    work()?;
    Ok((start.elapsed().as_secs_f64(), processor() - before))
}

fn writes(
    subject: &mut dyn Subject,
    count: usize,
    piece: &[u8],
    each: bool,
) -> Result<Took, Failure> {
    timed(|| {
        for _ in 0..count {
            subject.append(piece)?;
            if each {
                subject.flush()?;
            }
        }
        subject.flush()
    })
}

fn reads(
    subject: &mut dyn Subject,
    count: usize,
    of: usize,
    out: &mut [u8],
) -> Result<Took, Failure> {
    // An odd stride visits the pieces in an order no read-ahead follows; 1 is the sequential one.
    let stride = if out.len() == MIB { 1 } else { 7919 };
    timed(|| (0..count).try_for_each(|i| subject.read(i * stride % of, out)))
}

/// One round of every row; each group of rows on a fresh subject.
fn round(
    make: &dyn Fn() -> Result<Box<dyn Subject>, Failure>,
    sizes: &Sizes,
) -> Result<[Took; 8], Failure> {
    let large: Vec<u8> = (0..MIB).map(|i| (i % 253) as u8).collect();
    let small = &large[..BLOCK_LEN];
    let (mut large_out, mut small_out) = (vec![0; MIB], vec![0; BLOCK_LEN]);
    let mut took = [(0.0, 0.0); 8];

    let mut subject = make()?;
    took[0] = writes(&mut *subject, sizes.large, &large, false)?;
    took[1] = reads(&mut *subject, sizes.large, sizes.large, &mut large_out)?;
    drop_cache(&*subject)?;
    took[2] = reads(&mut *subject, sizes.large, sizes.large, &mut large_out)?;

    let mut subject = make()?;
    took[3] = writes(&mut *subject, sizes.small, small, false)?;
    took[4] = reads(&mut *subject, sizes.small, sizes.small, &mut small_out)?;
    drop_cache(&*subject)?;
    took[5] = reads(&mut *subject, sizes.cold, sizes.small, &mut small_out)?;

    took[6] = writes(&mut *make()?, sizes.synced, small, true)?;
    took[7] = writes(&mut *make()?, sizes.synced / 4, &large, true)?;
    Ok(took)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let parent = args.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let mib: usize = args.next().map_or(Ok(256), |a| a.parse())?;
    let rounds: usize = args.next().map_or(Ok(5), |a| a.parse())?;
    let sizes = Sizes {
        large: mib,
        small: mib * 64,
        cold: mib * 8,
        synced: 200,
    };
    let suite = Suite::fastest();
    println!(
        "{suite}, {mib} MiB, {rounds} rounds, in {}",
        parent.display()
    );

    let (mut plain, mut store) = (Vec::new(), Vec::new());
    for turn in 0..rounds * 2 {
        // Fresh directories, gone before the next turn.
        let dirs: Vec<_> = (0..4)
            .map(|_| tempfile::tempdir_in(&parent))
            .collect::<Result<_, _>>()?;
        let next = std::cell::Cell::new(0);
        let dir = || {
            next.set(next.get() + 1);
            dirs[next.get() - 1].path()
        };
        // Which goes first changes from round to round.
        if (turn + turn / 2) % 2 == 0 {
            plain.push(round(&|| Ok(Box::new(Plain::new(dir())?)), &sizes)?);
        } else {
            store.push(round(&|| Ok(Box::new(Store::new(dir(), suite)?)), &sizes)?);
        }
    }

    println!(
        "{:32} {:>12} {:>12} {:>7} {:>22}",
        "", "plain", "store", "ratio", "processor µs each"
    );
    let counts = [
        mib,
        mib,
        mib,
        sizes.small,
        sizes.small,
        sizes.cold,
        sizes.synced,
        sizes.synced / 4,
    ];
    for (row, name) in ROWS.iter().enumerate() {
        let count = counts[row] as f64;
        let rate = |of: &[[Took; 8]]| count / median(of.iter().map(|took| took[row].0).collect());
        let work =
            |of: &[[Took; 8]]| 1e6 * median(of.iter().map(|took| took[row].1).collect()) / count;
        let ratio = median(
            plain
                .iter()
                .zip(&store)
                .map(|(p, s)| p[row].0 / s[row].0)
                .collect(),
        );
        println!(
            "{name:32} {:>10.0}/s {:>10.0}/s {ratio:>7.2} {:>10.1} / {:>9.1}",
            rate(&plain),
            rate(&store),
            work(&plain),
            work(&store)
        );
    }
    Ok(())
}
