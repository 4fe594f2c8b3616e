//! What to type for a PostgreSQL server.

use super::super::pool;
use super::SHMEM_ENABLED;
use super::origin::{Origin, is_plain};
use crate::launch::Line;
use superpage_output::quoted;

/// Without a pool, where the setting of shared memory has this `word`: under `within_size` the
/// kernel makes the buffers huge as they are touched.
pub(super) fn without_pool(origin: &Origin, word: Option<&str>) -> Vec<Line> {
    let now = match word {
        Some(now @ ("never" | "advise")) => now,
        Some(now @ ("within_size" | "always" | "force")) => {
            let does = format!(
                "without a pool, by a restart alone (as its own user): shmem_enabled is {now} since it was started"
            );
            return vec![Line::new(does, format!("pg_ctl -D {} restart", folder(origin)))];
        }
        _ => return Vec::new(),
    };
    let does = format!(
        "without a pool, from the next start on, and for what any program shares from then on (root; undone by the \
         same line with {now})"
    );
    let line = format!("echo within_size > {SHMEM_ENABLED}");
    vec![Line::new(does, line), Line::at_boot(SHMEM_ENABLED, "within_size")]
}

/// The data folder, which a server has made its own.
fn folder(origin: &Origin) -> &str {
    if !origin.folder.is_empty() && is_plain(&origin.folder) { &origin.folder } else { "DATA" }
}

/// A pool for the buffers of PostgreSQL, which the server computes from its options; `now` pages
/// hold what it has mapped.
pub(super) fn with_pool(origin: &Origin, now: u64) -> Vec<Line> {
    let plain = origin.arguments.len() > 1 && origin.arguments.iter().all(|argument| is_plain(argument));
    let folder = folder(origin);
    let started = if plain {
        // Its folder may be as it was seen from where the server was started.
        let mut before = "";
        let mut words = Vec::new();
        for argument in &origin.arguments {
            let is_folder = before == "-D" && !argument.starts_with('/');
            words.push(if is_folder { folder.to_string() } else { quoted(argument).to_string() });
            before = argument;
        }
        words.join(" ")
    } else {
        format!("postgres -D {folder}")
    };
    let [pool, at_boot] = pool::set_aside(now);
    // What is on its command line goes before all files.
    let set =
        origin.arguments.iter().find(|argument| argument.trim_start_matches(['-', 'c']).starts_with("huge_pages="));
    let first = set.map_or(String::new(), |set| format!(", once {} is no longer on its command line", quoted(set)));
    // Its port and the folder of its socket, so that no other server of this host is meant.
    let given = |option: &str, key: &str| {
        let next = origin.arguments.iter().skip_while(|argument| *argument != option).nth(1);
        let at_once = || origin.arguments.iter().find_map(|argument| argument.strip_prefix(option));
        let by_key = origin
            .arguments
            .iter()
            .find_map(|argument| argument.trim_start_matches(['-', 'c']).strip_prefix(key)?.strip_prefix('='));
        next.map(String::as_str).or_else(at_once).or(by_key).filter(|value| !value.is_empty())
    };
    let host = given("-k", "unix_socket_directories").map(|host| format!("-h {} ", quoted(host)));
    let port = given("-p", "port").map(|port| format!("-p {} ", quoted(port)));
    let to = host.unwrap_or_default() + &port.unwrap_or_default();
    vec![
        Line::new(
            "with a pool: how many pages N its buffers need of it (as its own user, while it is stopped; \
             PostgreSQL 15 or later)",
            format!("{started} -C shared_memory_size_in_huge_pages"),
        ),
        pool,
        at_boot,
        // `try` is what it does unless somebody changed that. Not `on`: where the pool is not there
        // it would not start. And not a line in a file: which one it reads, and what goes before
        // that, is the server's to know.
        Line::new(
            format!(
                "it takes the pool when it starts again{first}; if it says off here, ALTER SYSTEM SET huge_pages = try \
                 and start it once more (as its superuser; undone by ALTER SYSTEM RESET huge_pages)"
            ),
            format!("psql {to}-c 'SHOW huge_pages'"),
        ),
    ]
}
