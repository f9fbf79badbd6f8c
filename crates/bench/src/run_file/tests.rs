use super::*;

fn nothing_in_rooms(_: &Path, _: &str) -> Result<()> {
    panic!("no room is in this test");
}

/// A process that has ended.
fn dead_pid() -> u32 {
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let pid = child.id();
    child.wait().unwrap();
    pid
}

/// Leaves everything as a killed process would.
fn kill(run: &Arc<Run>, work: WorkDir) {
    let mut state = run.state.lock();
    state.pid = dead_pid();
    save(&run.path, &state).unwrap();
    std::mem::forget(work);
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

struct Place {
    dir: tempfile::TempDir,
    state: PathBuf,
    under: PathBuf,
}

fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    let (state, under) = (dir.path().join("state"), dir.path().join("under"));
    fs::create_dir(&under).unwrap();
    fs::write(under.join("precious"), "mine").unwrap();
    Place { dir, state, under }
}

/// A run with a work directory.
fn begun() -> (Place, Arc<Run>, WorkDir) {
    let place = place();
    let run = Run::begin(&place.state).unwrap();
    let work = run.directory(&place.under).unwrap();
    (place, run, work)
}

#[test]
fn a_run_that_ends_leaves_neither_directory_nor_run_file() {
    let (place, _run, mut work) = begun();
    fs::write(work.path().join("data"), "x").unwrap();
    assert_eq!(names(&place.state).len(), 1);
    work.remove().unwrap();
    assert_eq!(names(&place.under), ["precious"]);
    assert!(names(&place.state).is_empty());
    assert!(place.dir.path().exists());
}

#[test]
fn what_is_forgotten_twice_does_not_bring_the_run_file_back() {
    let place = place();
    let run = Run::begin(&place.state).unwrap();
    run.will_mount(&place.under).unwrap();
    run.unmounted(&place.under);
    assert!(names(&place.state).is_empty());
    // Somebody else's file of that name would be theirs.
    fs::write(&run.path, "theirs").unwrap();
    run.unmounted(&place.under);
    assert_eq!(fs::read(&run.path).unwrap(), b"theirs");
}

#[test]
fn clean_removes_what_a_killed_run_left_and_nothing_else() {
    let (place, run, work) = begun();
    fs::create_dir_all(work.path().join("a/b")).unwrap();
    fs::write(work.path().join("a/b/c"), "x").unwrap();
    std::os::unix::fs::symlink(place.under.join("precious"), work.path().join("link")).unwrap();
    std::os::unix::fs::symlink(&place.under, work.path().join("a/up")).unwrap();
    kill(&run, work);
    let done = clean(&place.state, &nothing_in_rooms).unwrap();
    assert_eq!(done.len(), 1, "{done:?}");
    assert!(!done[0].left);
    assert_eq!(names(&place.under), ["precious"]);
    assert_eq!(fs::read(place.under.join("precious")).unwrap(), b"mine");
    assert!(names(&place.state).is_empty());
}

#[test]
fn a_run_that_goes_on_is_left_alone() {
    let (place, _run, work) = begun();
    let done = clean(&place.state, &nothing_in_rooms).unwrap();
    assert!(done[0].said.contains("goes on"), "{done:?}");
    assert!(work.path().exists());
}

#[test]
fn a_directory_without_our_mark_or_name_stays() {
    let place = place();
    // Another run's mark, our mark gone, and a run file that names somebody's directory.
    for spoil in [
        |work: &Path| fs::write(work.join(MARK), "0123").unwrap(),
        |work: &Path| fs::remove_file(work.join(MARK)).unwrap(),
    ] {
        let run = Run::begin(&place.state).unwrap();
        let work = run.directory(&place.under).unwrap();
        let path = work.path().to_owned();
        fs::write(path.join("file"), "x").unwrap();
        spoil(&path);
        kill(&run, work);
        let done = clean(&place.state, &nothing_in_rooms).unwrap();
        assert!(done[0].left, "{done:?}");
        assert!(path.join("file").exists());
        assert_eq!(names(&place.state).len(), 1, "the run file is kept");
        fs::remove_dir_all(path).unwrap();
        assert!(!clean(&place.state, &nothing_in_rooms).unwrap()[0].left);
    }
    let precious = place.under.join("directory");
    fs::create_dir(&precious).unwrap();
    fs::write(precious.join(MARK), "0123").unwrap();
    let run = Run::begin(&place.state).unwrap();
    run.state.lock().pid = dead_pid();
    run.note(Item::Directory {
        path: HexPath(precious.clone()),
        token: "0123".into(),
    })
    .unwrap();
    assert!(clean(&place.state, &nothing_in_rooms).unwrap()[0].left);
    assert!(precious.join(MARK).exists());
}

#[test]
fn a_run_killed_before_the_mark_is_cleaned_when_the_directory_is_empty() {
    let (place, run, work) = begun();
    fs::remove_file(work.path().join(MARK)).unwrap();
    kill(&run, work);
    assert!(!clean(&place.state, &nothing_in_rooms).unwrap()[0].left);
    assert_eq!(names(&place.under), ["precious"]);
}

#[test]
fn nothing_is_removed_across_a_mount() {
    let (place, run, work) = begun();
    let at = work.path().join("mnt");
    fs::create_dir(&at).unwrap();
    let bound = std::process::Command::new("mount")
        .args(["--bind".as_ref(), place.under.as_os_str(), at.as_os_str()])
        .output();
    if !bound.is_ok_and(|bound| bound.status.success()) {
        eprintln!("skipped: nothing can be mounted here");
        return;
    }
    let path = work.path().to_owned();
    kill(&run, work);
    let done = clean(&place.state, &nothing_in_rooms).unwrap();
    let kept = fs::read(place.under.join("precious"));
    unmount(&at).unwrap();
    assert!(done[0].left && done[0].said.contains("mounted"), "{done:?}");
    assert_eq!(kept.unwrap(), b"mine");
    assert!(!clean(&place.state, &nothing_in_rooms).unwrap()[0].left);
    assert!(!path.exists());
}

#[test]
fn a_mount_of_ours_is_unmounted_before_its_directory_goes() {
    let (place, run, work) = begun();
    let at = work.path().join("mnt");
    fs::create_dir(&at).unwrap();
    run.will_mount(&at).unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "none"])
        .arg(&at)
        .output();
    if !mounted.is_ok_and(|mounted| mounted.status.success()) {
        eprintln!("skipped: nothing can be mounted here");
        return;
    }
    kill(&run, work);
    let done = clean(&place.state, &nothing_in_rooms).unwrap();
    if is_mounted(&at) {
        unmount(&at).unwrap();
    }
    assert!(done.iter().all(|one| !one.left), "{done:?}");
    assert_eq!(names(&place.under), ["precious"]);
}

#[test]
fn paths_that_are_no_text_come_back() {
    let path = HexPath(std::ffi::OsString::from_vec(vec![b'/', 0xff, b'\n']).into());
    let text = serde_json::to_string(&path).unwrap();
    assert_eq!(serde_json::from_str::<HexPath>(&text).unwrap(), path);
    assert!(serde_json::from_str::<HexPath>("\"123\"").is_err());
}
