//! The file of a model, and the switches behind its name.

use super::kernels;
use super::{
    Clears, File, Flushes, KernelModel, LINE, Loops, MODELS, Memory, PROCESS, Path, Reclaims, Switches, Vsids,
};
use crate::Error;
use crate::policy::one_line;
use std::collections::BTreeMap;

/// The paths that a model must have.
const NEEDED: [&str; 9] = ["entry", "null", "other", "switch", "fault", "disk", "idle", "handler-c", "handler-fast"];

/// Those that it may have: events and calls for which there is none run `other`.
const KNOWN: [&str; 14] = [
    "close",
    "exec",
    "exit",
    "fork",
    "grow",
    "ioremap",
    "map",
    "open",
    "pipe-read",
    "pipe-write",
    "protect",
    "read",
    "unmap",
    "write",
];

/// The most characters of the name of a call in a stream.
const NAME: usize = 32;

impl KernelModel {
    /// The model of a name, a built-in one or the path of a file, with switches after a colon:
    /// `linux-ppc:flush=eager,blocks=off`.
    ///
    /// # Errors
    /// There is none of that name, the file cannot be read or is not a model, a switch has no such
    /// value, or one is set that has no effect with the others.
    pub fn named(text: &str) -> Result<KernelModel, Error> {
        let (name, set) = text.split_once(':').unwrap_or((text, ""));
        let wrong = |problem: &str| Error::Usage(format!("kernel {text}: {problem}"));
        let file = match MODELS.iter().find(|(known, _)| *known == name) {
            Some((_, file)) => file.to_string(),
            None if name.ends_with(".toml") => {
                superpage_output::read_text(name.as_ref()).map_err(|error| wrong(&error.to_string()))?
            }
            None => {
                let known: Vec<&str> = kernels().collect();
                let problem = format!("there is no such model: there are {}, or a file, NAME.toml", known.join(", "));
                return Err(wrong(&problem));
            }
        };
        let values: toml::Table = toml::from_str(&file).map_err(|error| wrong(&one_line(&error, &file)))?;
        let file: File = toml::from_str(&file).map_err(|error| wrong(&one_line(&error, &file)))?;
        let (mut switches, mut given) = (file.switches.clone(), Vec::new());
        for part in set.split(',').filter(|part| !part.is_empty()) {
            let Some((key, value)) = part.split_once('=') else {
                return Err(wrong(&format!("\"{part}\" is no switch: give key=value")));
            };
            let known: Vec<&str> = switches.keys().map(String::as_str).collect();
            if !known.contains(&key) {
                return Err(wrong(&format!("there is no switch \"{key}\": there are {}", known.join(", "))));
            }
            if given.iter().any(|given| given == key) {
                return Err(wrong(&format!("switch \"{key}\" is there twice")));
            }
            given.push(key.to_string());
            // Parsed only where a number is expected: the error of any other value says what is.
            let number = value.parse().ok().filter(|_| switches[key].is_integer());
            let value = number.map_or_else(|| toml::Value::String(value.into()), toml::Value::Integer);
            switches.insert(key.into(), value);
        }
        let mut switches = Switches::of(switches).map_err(|problem| wrong(&problem))?;
        switches.agree(&given).map_err(|problem| wrong(&problem))?;
        let paths = joined(file.path, file.call).map_err(|problem| wrong(&problem))?;
        let mut assumed = Vec::new();
        for table in &file.assumed {
            let Some(value) = values.get(table) else {
                return Err(wrong(&format!("assumed: the file has no [{table}]")));
            };
            leaves(&format!("kernel.{table}"), value, &mut assumed);
        }
        let (memory, loops) = (file.memory, file.loops);
        let model = KernelModel { text: text.into(), memory, switches, given, paths, loops, assumed };
        model.check().map_err(|problem| wrong(&problem))?;
        Ok(model)
    }

    /// What of the file is too much or too little.
    fn check(&self) -> Result<(), String> {
        for needed in NEEDED {
            if !self.paths.contains_key(needed) {
                return Err(format!("the file has no [path.{needed}]"));
            }
        }
        let Memory { first_page, text, data, device_page, device_pages, .. } = self.memory;
        if [first_page, device_page].iter().any(|page| *page >= 1 << 20) || device_pages > 1 << 16 {
            return Err(
                "memory.first-page and memory.device-page must be below 2^20, memory.device-pages at most 65536".into(),
            );
        }
        if device_page <= first_page {
            return Err(format!(
                "memory.device-page is {device_page:#x}: it must be behind memory, which begins at memory.first-page, {first_page:#x}"
            ));
        }
        if text.max(data) > 1 << 30 {
            return Err("memory.text and memory.data are at most 1G".into());
        }
        for (name, path) in &self.paths {
            let lines = [path.code, path.data, path.process, path.other_process, path.device];
            if lines.iter().any(|lines| *lines > 1 << 16) || path.instructions > 1_000_000_000 {
                return Err(format!("path {name}: at most 65536 lines of a kind, and 1000000000 instructions"));
            }
        }
        let Loops { clear_per_line, copy_per_line, reclaim_per_entry } = self.loops;
        if [clear_per_line, copy_per_line, reclaim_per_entry].iter().any(|instructions| *instructions > 1_000_000) {
            return Err("[loop]: at most 1000000 instructions".into());
        }
        let (code, data) = self.paths.values().fold((0, 0), |(code, data), path| (code + path.code, data + path.data));
        for (what, lines, bytes) in [("text", code, self.memory.text), ("data", data, self.memory.data)] {
            if lines * LINE > bytes {
                return Err(format!(
                    "its paths have {lines} lines of {what}, which are more than memory.{what}, {bytes} bytes"
                ));
            }
        }
        let most = |of: fn(&Path) -> u64| self.paths.values().map(of).max().unwrap_or(0);
        if most(|path| path.process.max(path.other_process)) * LINE > PROCESS {
            return Err(format!("a path has more lines of a process than fit into {PROCESS} bytes"));
        }
        if most(|path| path.device) > self.memory.device_pages {
            return Err("a path has more lines of devices than there are pages of them".into());
        }
        let of = self.memory.processes;
        if !(1..=4096).contains(&of) {
            return Err(format!("memory.processes is from 1 to 4096, not {of}"));
        }
        Ok(())
    }
}

impl Switches {
    /// Of these values. The error names the switch.
    fn of(values: toml::Table) -> Result<Switches, String> {
        let whole = values.clone();
        whole.try_into().map_err(|error: toml::de::Error| {
            // Tries each switch by itself. The others are missing then: that error does not count.
            let missing = |error: &toml::de::Error| error.message().starts_with("missing field");
            let wrong = values.iter().find_map(|(key, value)| {
                let alone = toml::Table::from_iter([(key.clone(), value.clone())]);
                let error = alone.try_into::<Switches>().err().filter(|error| !missing(error))?;
                Some(format!("switch {key} = {value}: {}", error.message()))
            });
            wrong.unwrap_or_else(|| format!("[switches]: {}", error.message()))
        })
    }

    /// Refuses a switch that the user has set and that contradicts the others or has no effect with
    /// them; where a default has no effect, the switch is off.
    fn agree(&mut self, given: &[String]) -> Result<(), String> {
        let is_given = |key: &str| given.iter().any(|given| given == key);
        let (eager, table) = (self.flush == Flushes::Eager, self.table.is_on());
        if eager && is_given("cutoff") {
            return Err("an eager kernel flushes any range page by page: cutoff goes with flush=lazy".into());
        }
        if !eager && self.vsids == Vsids::Process {
            return Err("lazy flushes give spaces other numbers: vsids=process goes with flush=eager".into());
        }
        if self.reclaim != Reclaims::No && (eager || !table) {
            if is_given("reclaim") {
                let why =
                    if table { "eager flushes leave none: it goes with flush=lazy" } else { "it goes with table=on" };
                return Err(format!("reclaim frees zombies in the hash table: {why}"));
            }
            self.reclaim = Reclaims::No;
        }
        if let Some(key) = ["scatter", "vsids"].into_iter().find(|key| is_given(key) && !table) {
            return Err(format!("{key} is for the hash table: it goes with table=on"));
        }
        if is_given("list") && self.clear == Clears::No {
            return Err("list is of the pages that the idle task clears: it goes with clear=cached or uncached".into());
        }
        if self.scatter.is_multiple_of(512) || self.scatter >= 1 << 20 {
            return Err(
                "scatter is a number below 1048576 and no multiple of 512, so that there are enough contexts".into()
            );
        }
        Ok(())
    }
}

/// The values of a table as `key = value`.
fn leaves(key: &str, value: &toml::Value, all: &mut Vec<String>) {
    match value {
        toml::Value::Table(table) => {
            table.iter().for_each(|(name, value)| leaves(&format!("{key}.{name}"), value, all))
        }
        value => all.push(format!("{key} = {value}")),
    }
}

/// The paths of both: those that a model knows, and of calls that only a stream names.
fn joined(paths: BTreeMap<String, Path>, calls: BTreeMap<String, Path>) -> Result<BTreeMap<String, Path>, String> {
    let known = |name: &str| NEEDED.contains(&name) || KNOWN.contains(&name);
    if let Some(name) = paths.keys().find(|name| !known(name)) {
        let mut all: Vec<&str> = NEEDED.iter().chain(&KNOWN).copied().collect();
        all.sort_unstable();
        let all = all.join(", ");
        return Err(format!(
            "no event takes [path.{name}]: there are {all}; of a call that a stream names, write [call.{name}]"
        ));
    }
    for name in calls.keys() {
        if known(name) {
            return Err(format!("[call.{name}] is a path that each model has or may have: write [path.{name}]"));
        }
        let letters = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        if name.is_empty() || name.len() > NAME || !letters {
            return Err(format!("[call.{name}]: the names of calls have up to {NAME} of a-z, 0-9 and -"));
        }
    }
    Ok(paths.into_iter().chain(calls).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built_in() -> String {
        MODELS[0].1.into()
    }

    fn told(file: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.toml");
        std::fs::write(&path, file).unwrap();
        let text = path.to_str().unwrap();
        KernelModel::named(text).map_or_else(|error| error.to_string().replace(text, "mine.toml"), |_| String::new())
    }

    #[test]
    fn a_path_that_nothing_takes_is_refused_and_a_call_of_a_stream_has_its_own() {
        let with = |table: &str| format!("{}\n[{table}]\ninstructions = 9\ncode = 1\n", built_in());
        assert!(told(&with("path.forkx")).contains("no event takes [path.forkx]: there are close, disk"));
        assert_eq!(told(&with("call.forkx")), "");
        assert!(told(&with("call.fork2X")).contains("up to 32 of a-z"));
        let file = built_in().replace("[path.fork]", "[call.fork]");
        assert!(told(&file).contains("write [path.fork]"), "{}", told(&file));
        assert!(told(&built_in().replace("[path.entry]", "[call.entr]")).contains("no [path.entry]"));
    }

    #[test]
    fn a_wrong_switch_of_a_file_is_named() {
        let wrong = told(&built_in().replace("\nblocks = \"on\"", "\nblocks = \"yes\""));
        assert!(wrong.contains("switch blocks = \"yes\": unknown variant `yes`, expected `on` or `off`"), "{wrong}");
        let wrong = told(&built_in().replace("\ncutoff = 20", "\ncutoff = -1"));
        assert!(wrong.contains("switch cutoff = -1: "), "{wrong}");
        let wrong = told(&built_in().replace("\ncutoff = 20", ""));
        assert!(wrong.contains("[switches]: missing field `cutoff`"), "{wrong}");
        let wrong = told(&built_in().replace("\ncutoff = 20", "\ncutoff = 20\ncolour = 1"));
        assert!(wrong.contains("colour"), "{wrong}");
        let wrong = told(&built_in().replace("device-page = 0xf0000", "device-page = 0xc0000"));
        assert!(wrong.contains("it must be behind memory"), "{wrong}");
    }

    #[test]
    fn assumed_values_are_named_one_by_one() {
        let model = KernelModel::named("linux-ppc").unwrap();
        assert!(model.assumed.contains(&"kernel.path.entry.instructions = 70".to_string()), "{:?}", model.assumed);
        assert!(model.assumed.contains(&"kernel.loop.copy-per-line = 36".to_string()));
        assert!(!model.assumed.iter().any(|value| value.contains("switches")));
    }
}
