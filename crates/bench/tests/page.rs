//! The page in Chromium: nothing is fetched, nothing complains, and nothing makes a phone scroll sideways.
//!
//! Needs Debian's `chromium`; says so and passes where there is none. `SHOTS=DIR` keeps the pictures for a person to look at.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bench::report::{json, page};

fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let found = ["chromium", "chromium-browser", "google-chrome"]
        .iter()
        .flat_map(|name| std::env::split_paths(&path).map(move |dir| dir.join(name)))
        .find(|program| program.is_file());
    if found.is_none() {
        eprintln!("skipped: there is no chromium here (apt install chromium)");
    }
    found
}

fn sample(name: &str) -> String {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/{name}.json"));
    page::html(&json::read(&fs::read_to_string(place).unwrap()).unwrap())
}

/// Runs the browser on a page with a profile of its own that goes with `dir`; standard output and standard error.
fn browse(program: &Path, dir: &Path, page: &Path, options: &[&str]) -> (String, String) {
    let run = Command::new(program)
        .args([
            "--headless",
            // The tests may run as root, where Chromium's sandbox cannot.
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--enable-logging=stderr",
        ])
        .arg(format!("--user-data-dir={}", dir.join("profile").display()))
        .args(options)
        .arg(format!("file://{}", page.display()))
        .env("HOME", dir)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    (
        String::from_utf8_lossy(&run.stdout).into_owned(),
        String::from_utf8_lossy(&run.stderr).into_owned(),
    )
}

#[test]
fn the_page_loads_in_silence_and_asks_nobody_for_anything() {
    let Some(program) = chromium() else { return };
    let dir = tempfile::tempdir().unwrap();
    for name in ["compare", "small-files", "empty"] {
        let page = dir.path().join("page.html");
        fs::write(&page, sample(name)).unwrap();
        let log = dir.path().join("net.json");
        let option = format!("--log-net-log={}", log.display());
        let (dom, said) = browse(&program, dir.path(), &page, &[&option, "--dump-dom"]);
        assert!(
            dom.contains("strongroom bench"),
            "{name}: not shown: {said}"
        );
        let complaints: Vec<&str> = said
            .lines()
            .filter(|line| line.contains("CONSOLE"))
            .collect();
        assert!(complaints.is_empty(), "{name}: {complaints:#?}");
        assert_eq!(
            asked(&fs::read_to_string(&log).unwrap()),
            Vec::<String>::new(),
            "{name}"
        );
    }
}

/// Addresses the browser asked for on behalf of a page: not its own services, which have no initiator.
fn asked(log: &str) -> Vec<String> {
    let log: serde_json::Value = serde_json::from_str(log).unwrap();
    let events = log["events"].as_array().unwrap();
    let mut addresses: Vec<String> = events
        .iter()
        .filter(|event| {
            event["params"]["initiator"]
                .as_str()
                .is_some_and(|from| from != "not an origin")
        })
        .filter_map(|event| event["params"]["url"].as_str())
        .filter(|address| address.starts_with("http"))
        .map(String::from)
        .collect();
    addresses.dedup();
    addresses
}

/// The same two checks on a page that fails them: without this, they could pass because they see nothing.
#[test]
fn a_page_that_fetches_or_complains_would_be_noticed() {
    let Some(program) = chromium() else { return };
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.html");
    fs::write(
        &page,
        "<!doctype html><title>x</title><img src='http://somewhere.invalid/a.png'><script>console.error('oh')</script>",
    )
    .unwrap();
    let log = dir.path().join("net.json");
    let option = format!("--log-net-log={}", log.display());
    let (_, said) = browse(&program, dir.path(), &page, &[&option, "--dump-dom"]);
    assert!(
        said.lines()
            .any(|line| line.contains("CONSOLE") && line.contains("oh")),
        "{said}"
    );
    let asked = asked(&fs::read_to_string(&log).unwrap());
    assert!(
        asked
            .iter()
            .any(|address| address.contains("somewhere.invalid")),
        "{asked:?}"
    );
}

/// The page in a frame of a phone's width; a script, which the page itself may not have, measures it and reports.
fn overflow(program: &Path, dir: &Path, page: &str, width: u32) -> (i64, i64) {
    let policy = page.find("<meta http-equiv").unwrap();
    let end = policy + page[policy..].find('>').unwrap() + 1;
    let reports = "<script>addEventListener('load',()=>parent.postMessage(\
        document.documentElement.scrollWidth+'/'+innerWidth,'*'))</script>";
    let measured = format!("{}{reports}{}", &page[..policy], &page[end..])
        .replace("<details>", "<details open>");
    fs::write(dir.join("inner.html"), measured).unwrap();
    let outer = dir.join("outer.html");
    fs::write(
        &outer,
        format!(
            "<!doctype html><title>x</title><p id=result></p><script>onmessage=e=>{{result.textContent='result '+e.data+' end'}}\
             </script><iframe width={width} height=700 style='border:0' src=inner.html></iframe>"
        ),
    )
    .unwrap();
    let (dom, said) = browse(
        program,
        dir,
        &outer,
        &["--virtual-time-budget=5000", "--dump-dom"],
    );
    let reported = dom
        .split("result ")
        .nth(1)
        .and_then(|text| text.split(" end").next());
    let (scroll, inner) = reported
        .and_then(|text| text.split_once('/'))
        .unwrap_or_else(|| panic!("{dom}\n{said}"));
    (scroll.parse().unwrap(), inner.parse().unwrap())
}

#[test]
fn a_phone_does_not_scroll_sideways() {
    let Some(program) = chromium() else { return };
    let dir = tempfile::tempdir().unwrap();
    for name in ["compare", "small-files", "empty"] {
        for width in [320, 360, 700] {
            let (scroll, inner) = overflow(&program, dir.path(), &sample(name), width);
            assert_eq!(inner, i64::from(width), "{name}");
            assert!(scroll <= inner, "{name} at {width}: {scroll} wide");
        }
    }
    let wide = sample("empty").replace("<main>", "<main><pre style='width:900px'>x</pre>");
    let (scroll, inner) = overflow(&program, dir.path(), &wide, 360);
    assert!(scroll > inner, "a page that does scroll is not noticed");
}

#[test]
fn pictures_are_drawn_light_dark_and_narrow() {
    let Some(program) = chromium() else { return };
    let dir = tempfile::tempdir().unwrap();
    let keep = std::env::var_os("SHOTS").map(PathBuf::from);
    for name in ["compare", "small-files"] {
        let page = dir.path().join("page.html");
        fs::write(&page, sample(name)).unwrap();
        let mut pictures = Vec::new();
        for (look, options) in [
            ("light", vec!["--window-size=1000,4200"]),
            (
                "dark",
                vec![
                    "--window-size=1000,4200",
                    "--blink-settings=preferredColorScheme=0",
                ],
            ),
            ("phone", vec!["--window-size=390,5200"]),
        ] {
            let shot = dir.path().join(format!("{name}-{look}.png"));
            let option = format!("--screenshot={}", shot.display());
            let mut options = options;
            options.push(&option);
            let (_, said) = browse(&program, dir.path(), &page, &options);
            let picture = fs::read(&shot).unwrap_or_else(|e| panic!("{name} {look}: {e}: {said}"));
            assert!(picture.len() > 20_000, "{name} {look}: an empty picture");
            if let Some(keep) = &keep {
                fs::copy(&shot, keep.join(shot.file_name().unwrap())).unwrap();
            }
            pictures.push(picture);
        }
        assert!(pictures[0] != pictures[1], "{name}: dark is light");
    }
}
