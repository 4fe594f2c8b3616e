//! Every command that the documents show is one that this program takes: its verbs and options
//! exist, and no two of them exclude each other. What many of them do needs root, programs or hours
//! and is run by the tests of their verbs, so these commands are parsed, not run.

use crate::Command;
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches};
use std::fs;
use std::path::{Path, PathBuf};

/// README.md and all pages of `docs`.
fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders = ["docs", "docs/results"].map(|folder| fs::read_dir(root.join(folder)).unwrap());
    let pages = folders.into_iter().flatten().map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> = pages.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    pages.push(root.join("README.md"));
    pages.sort();
    pages
}

/// The commands in the fenced blocks and in the backquotes of a text, one a line.
fn commands(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (place, part) in text.split("```").enumerate() {
        if place % 2 == 0 {
            let spans = part.split('`').skip(1).step_by(2).filter(|span| span.starts_with("superpage "));
            found.extend(spans.map(|span| span.split_whitespace().collect::<Vec<_>>().join(" ")));
            continue;
        }
        // Where output is shown, or C, a command has a prompt.
        let prompted = !part.starts_with("sh\n");
        let mut lines = part.lines().map(|line| line.trim_end_matches('\\'));
        while let Some(line) = lines.next() {
            let bare = line.strip_prefix("$ ").or(line.strip_prefix("# ")).unwrap_or(line);
            if bare.starts_with("superpage ") && (bare != line || !prompted) {
                let mut command = String::from(bare);
                // Quotes reach over lines, and so do options.
                while let Some(next) = lines.clone().next()
                    && (shlex::split(&command).is_none() || next.starts_with("    "))
                {
                    command.extend([" ", next.trim_start()]);
                    lines.next();
                }
                found.push(command);
            }
        }
    }
    found
}

/// The words of one command, up to what is for the shell, without the brackets around what may be
/// left out.
fn words(command: &str) -> Option<Vec<String>> {
    let shell = |word: &String| matches!(word.as_str(), "|" | "||" | "&&" | ";" | "&" | "<") || word.contains('>');
    let mut words: Vec<String> = Vec::new();
    for word in shlex::split(&command.replace(['[', ']'], ""))?.into_iter().take_while(|word| !shell(word)) {
        words.push(word.trim_end_matches(';').into());
        if word.ends_with(';') {
            break;
        }
    }
    Some(words)
}

/// Why this program does not take it, if it does not. Values may stand for others (`FILE`), and
/// what a sentence leaves out may be wanting.
fn refused(command: &str) -> Option<String> {
    let Some(words) = words(command) else { return Some("its quotes do not match".into()) };
    let parsed = Command::command().try_get_matches_from(&words).and_then(|it| Command::from_arg_matches(&it));
    let error = parsed.err()?;
    let wrong = matches!(
        error.kind(),
        ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand | ErrorKind::ArgumentConflict | ErrorKind::NoEquals
    );
    wrong.then(|| error.to_string().lines().next().unwrap_or_default().into())
}

#[test]
fn every_command_in_the_documents_is_one_that_there_is() {
    let mut seen = 0;
    let mut wrong = Vec::new();
    for path in documents() {
        let text = fs::read_to_string(&path).unwrap();
        for command in commands(&text) {
            seen += 1;
            wrong.extend(refused(&command).map(|why| format!("{}: {command}: {why}", path.display())));
        }
    }
    assert!(wrong.is_empty(), "{} of {seen}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(seen > 300, "{seen} commands were found");
    assert!(refused("superpage sim --polcy thp").is_some() && refused("superpage simulate").is_some());
}
