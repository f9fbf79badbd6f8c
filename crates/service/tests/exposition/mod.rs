//! A strict reader of Prometheus' text format 0.0.4, as its documentation describes it: what it lets through, Prometheus
//! takes, and what promtool would complain of (names, missing help, wrong endings) it refuses too.

/// One line with a value.
#[derive(Debug)]
pub struct Sample {
    pub name: String,
    pub labels: Vec<(String, String)>,
    pub value: f64,
}

/// The samples under one `# HELP` and `# TYPE`.
#[derive(Debug)]
pub struct Family {
    pub name: String,
    pub kind: String,
    pub samples: Vec<Sample>,
}

pub fn parse(text: &str) -> Result<Vec<Family>, String> {
    if !text.ends_with('\n') {
        return Err("the last line has no end".into());
    }
    let mut families: Vec<Family> = Vec::new();
    let mut helped = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').ok_or("no help")?;
            if help.trim().is_empty() {
                return Err(format!("{name} has an empty help"));
            }
            helped = Some(name.to_owned());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').ok_or("no type")?;
            if helped.take().as_deref() != Some(name) {
                return Err(format!("{name} has a type and no help"));
            }
            if families.iter().any(|family| family.name == name) {
                return Err(format!("{name} is here twice"));
            }
            if !matches!(kind, "counter" | "gauge") {
                return Err(format!("{name} is of the type {kind}"));
            }
            if (kind == "counter") != name.ends_with("_total") {
                return Err(format!("{name} is a {kind}, and its ending says otherwise"));
            }
            is_name(name)?;
            families.push(Family {
                name: name.into(),
                kind: kind.into(),
                samples: Vec::new(),
            });
        } else if line.starts_with('#') {
            return Err(format!("an odd comment: {line}"));
        } else {
            let family = families.last_mut().ok_or("a value before its family")?;
            let sample = sample(line)?;
            if sample.name != family.name {
                return Err(format!("{} is none of {}", sample.name, family.name));
            }
            let same = |s: &Sample| s.name == sample.name && s.labels == sample.labels;
            if family.samples.iter().any(same) {
                return Err(format!("twice: {line}"));
            }
            if family.kind == "counter" && sample.value < 0.0 {
                return Err(format!("a counter below 0: {line}"));
            }
            family.samples.push(sample);
        }
    }
    for family in &families {
        if family.samples.is_empty() {
            return Err(format!("{} has no value", family.name));
        }
    }
    Ok(families)
}

fn is_name(name: &str) -> Result<(), String> {
    let mut letters = name.chars();
    let first = letters.next().is_some_and(|c| c.is_ascii_lowercase());
    if first && letters.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_') {
        Ok(())
    } else {
        Err(format!("'{name}' is no name"))
    }
}

fn number(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| format!("'{text}' is no number"))
}

fn sample(line: &str) -> Result<Sample, String> {
    let end = line
        .find(['{', ' '])
        .ok_or_else(|| format!("no value: {line}"))?;
    let name = line[..end].to_owned();
    is_name(&name)?;
    let mut rest = &line[end..];
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, after) = rest
                .split_once("=\"")
                .ok_or_else(|| format!("a label: {line}"))?;
            is_name(label)?;
            let mut value = String::new();
            let mut chars = after.char_indices();
            let close = loop {
                match chars
                    .next()
                    .ok_or_else(|| format!("a label without end: {line}"))?
                {
                    (at, '"') => break at,
                    (_, '\\') => value.push(match chars.next().map(|(_, c)| c) {
                        Some('n') => '\n',
                        Some(c @ ('"' | '\\')) => c,
                        _ => return Err(format!("a wrong escape: {line}")),
                    }),
                    (_, c) => value.push(c),
                }
            };
            labels.push((label.to_owned(), value));
            rest = &after[close + 1..];
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => break,
            }
        }
        rest = rest
            .strip_prefix('}')
            .ok_or_else(|| format!("no end of labels: {line}"))?;
    }
    let value = rest
        .strip_prefix(' ')
        .ok_or_else(|| format!("no space: {line}"))?;
    Ok(Sample {
        name,
        labels,
        value: number(value)?,
    })
}

#[test]
fn what_prometheus_would_refuse_is_refused() {
    assert!(parse("# HELP a_total x\n# TYPE a_total counter\na_total{b=\"c\"} 1\n").is_ok());
    for wrong in [
        "# HELP a x\n# TYPE a counter\na 1\n",
        "# TYPE a gauge\na 1\n",
        "# HELP a x\n# TYPE a gauge\n",
        "# HELP a x\n# TYPE a gauge\nb 1\n",
        "# HELP a x\n# TYPE a gauge\na one\n",
        "# HELP a x\n# TYPE a gauge\na 1\na 2\n",
        "# HELP a x\n# TYPE a gauge\na{b=\"\\x\"} 1\n",
        "# HELP a x\n# TYPE a gauge\na{b=\"x} 1\n",
        "# HELP a x\n# TYPE a gauge\na 1",
    ] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
}
