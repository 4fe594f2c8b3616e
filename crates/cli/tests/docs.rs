//! Checks that the files, symbols and tests named in the documents exist, and that the tutorials
//! work.

use std::fs;
use std::path::{Path, PathBuf};

/// The folders whose paths are checked.
const FOLDERS: [&str; 6] = ["crates/", "machines/", "docs/", "corpus/", "demo/", "fuzz/"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn listed(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}")).map(|entry| entry.unwrap().path())
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}

/// The READMEs, where there are, and the documents, each with its text outside fenced blocks.
fn documents() -> Vec<(PathBuf, String)> {
    let root = root();
    let readmes =
        ["README.md", "corpus/README.md"].map(|name| root.join(name)).into_iter().filter(|path| path.exists());
    let documents = readmes.chain(listed(&root.join("docs")).filter(|path| has_extension(path, "md")));
    let prose = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let prose: Vec<&str> = text.split("\n```").step_by(2).collect();
        (path, prose.join("\n"))
    };
    documents.map(prose).collect()
}

/// The words in backquotes, without punctuation at their ends.
fn quoted<'a>(path: &Path, prose: &'a str) -> Vec<&'a str> {
    let parts: Vec<&str> = prose.split('`').collect();
    assert!(parts.len() % 2 == 1, "{path:?} has a backquote without its partner");
    let spans = parts.into_iter().skip(1).step_by(2);
    spans.flat_map(str::split_whitespace).map(|word| word.trim_end_matches([',', ';', ':', ')', '.'])).collect()
}

/// Every source file of the crates.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for path in listed(folder) {
        if path.is_dir() {
            sources(&path, found);
        } else if has_extension(&path, "rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_path_in_the_documents_exists() {
    let _turn = superpage_testing::turn_of("docs");
    let mut checked = 0;
    for (document, prose) in documents() {
        for word in quoted(&document, &prose) {
            let path = word.split("::").next().unwrap();
            // A word in capitals stands for a name of the reader's choice.
            let placeholder = Path::new(path).file_stem().is_some_and(|stem| stem == "NAME");
            if placeholder || !FOLDERS.iter().any(|folder| path.starts_with(folder)) {
                continue;
            }
            checked += 1;
            let exists = match path.split_once("*.") {
                Some((folder, extension)) => listed(&root().join(folder)).any(|path| has_extension(&path, extension)),
                None => root().join(path).exists(),
            };
            assert!(exists, "{document:?} names {path}, which does not exist");
        }
    }
    assert!(checked > 20, "only {checked} paths were found");
}

/// Generated pages, which are longer and wider; so are those in docs/results.
const LONG: [&str; 1] = ["rows.md"];

/// What a reader takes in at a sitting: 150 lines of 100 columns. Tables are wider, and Rust is as
/// wide as sources.
#[test]
fn pages_are_short_and_in_the_index() {
    let _turn = superpage_testing::turn_of("docs");
    let index = fs::read_to_string(root().join("docs/README.md")).unwrap();
    for page in listed(&root().join("docs/results")) {
        let (name, text) = (page.file_name().unwrap().to_str().unwrap(), fs::read_to_string(&page).unwrap());
        assert!(index.contains(&format!("](results/{name})")), "docs/README.md does not name results/{name}");
        let command = format!("\nsuperpage reproduce {}", name.trim_end_matches(".md"));
        assert!(text.starts_with("<!--") && text.contains(&command), "{name}: make reproduce writes it");
    }
    for page in listed(&root().join("docs")).filter(|path| has_extension(path, "md")) {
        let name = page.file_name().unwrap().to_str().unwrap();
        assert!(name == "README.md" || index.contains(&format!("]({name})")), "docs/README.md does not name {name}");
        let text = fs::read_to_string(&page).unwrap();
        let parts = text.split("\n```").filter(|part| !part.starts_with("rust") && !part.starts_with("no_run"));
        let mut lines = parts.flat_map(str::lines).filter(|line| !line.trim_start().starts_with('|'));
        let wide = lines.find(|line| line.chars().count() > 100);
        let fits = text.lines().count() <= 150 && wide.is_none();
        assert!(fits != LONG.contains(&name), "{name}: {} lines, too wide: {wide:?}", text.lines().count());
    }
}

/// Whether Rust source defines an item with this name.
fn defines(source: &str, symbol: &str) -> bool {
    const KEYWORDS: [&str; 9] = ["fn", "struct", "enum", "trait", "type", "const", "static", "mod", "macro_rules!"];
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let code = source.lines().map(str::trim_start).filter(|line| !line.starts_with("//"));
    code.flat_map(|line| line.match_indices(symbol).map(move |(at, _)| line.split_at(at))).any(|(before, from)| {
        let keyword = before.strip_suffix(' ').and_then(|before| before.rsplit(' ').next());
        keyword.is_some_and(|word| KEYWORDS.contains(&word)) && !from[symbol.len()..].starts_with(is_part)
    })
}

#[test]
fn every_symbol_on_the_pages_of_papers_is_defined() {
    let _turn = superpage_testing::turn_of("docs");
    let mut files = Vec::new();
    sources(&root().join("crates"), &mut files);
    let pages = ["docs/papers.md", "docs/papers-others.md"];
    let read = pages.map(|page| (page, fs::read_to_string(root().join(page)).unwrap()));
    let words =
        read.iter().flat_map(|(page, text)| quoted(Path::new(page), text).into_iter().map(move |word| (page, word)));
    let (mut tests, mut symbols) = (0, 0);
    for (page, word) in words {
        let is_code = word.starts_with("crates/") && word.contains(".rs") && !word.contains("/tests/");
        let Some((file, symbol)) = word.split_once("::").filter(|(file, _)| file.ends_with(".rs")) else {
            assert!(!is_code, "{page} names {word} without a symbol, expected {word}::symbol");
            continue;
        };
        if ["path.rs", "file.rs"].contains(&file) {
            continue;
        }
        *if is_code { &mut symbols } else { &mut tests } += 1;
        let named = |path: &&PathBuf| if is_code { **path == root().join(file) } else { path.ends_with(file) };
        let mut named = files.iter().filter(named).peekable();
        assert!(named.peek().is_some(), "{page} names {file}, which does not exist");
        let found = named.any(|path| defines(&fs::read_to_string(path).unwrap(), symbol));
        assert!(found, "{page} names {word}, but {file} does not define {symbol}");
    }
    assert!(tests > 40, "only {tests} tests were found");
    assert!(symbols > 80, "only {symbols} symbols were found");
}

#[test]
fn an_item_is_found_by_its_whole_name_where_it_is_defined() {
    let source = "// fn commented()\npub(crate) const fn given(at: u64) {}\nstruct Given;\n    given_again(4);\n";
    assert!(defines(source, "given") && defines(source, "Given"));
    assert!(!defines(source, "give") && !defines(source, "commented") && !defines(source, "given_again"));
}

/// The fenced blocks of a document, each as the word behind its fence and its text.
fn blocks(document: &str) -> Vec<(String, String)> {
    let text = fs::read_to_string(root().join(document)).unwrap();
    let fenced = text.split("\n```").skip(1).step_by(2);
    fenced.map(|block| block.split_once('\n').unwrap()).map(|(kind, text)| (kind.into(), text.into())).collect()
}

/// The pages on machines, as a reader would follow them: each file is written where its first line
/// says, each command run beside it.
#[test]
fn what_the_pages_on_machines_show_works() {
    let _turn = superpage_testing::turn_of("docs");
    let folder = tempfile::tempdir().unwrap();
    let pages = ["machines", "machine-file", "machines-joins", "machines-entries", "machines-shadow"];
    let pages = pages.into_iter().chain(["machines-tables", "machines-guests"]);
    let blocks: Vec<_> = pages.flat_map(|page| blocks(&format!("docs/{page}.md"))).collect();
    for (_, text) in blocks.iter().filter(|(kind, _)| kind == "toml") {
        let name = text.lines().next().unwrap().trim_start_matches("# ");
        assert!(name.ends_with(".toml") && !name.contains('/'), "{name}: expected the name of a file");
        fs::write(folder.path().join(name), text).unwrap();
    }
    let mut ran = Vec::new();
    for (_, text) in blocks.iter().filter(|(kind, _)| kind == "console") {
        for line in text.replace(" \\\n    ", " ").lines() {
            let words: Vec<&str> = line.strip_prefix("$ superpage ").unwrap().split(' ').collect();
            let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_superpage"));
            let done = command.args(&words).args(["--format", "json"]).current_dir(folder.path()).output().unwrap();
            assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
            let rows: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
            let rows = rows["rows"].as_array().unwrap_or_else(|| rows.as_array().unwrap()).clone();
            ran.extend(rows.into_iter().filter(|row| row["policy"] == "thp"));
        }
    }
    let told: Vec<(&str, u64)> =
        ran.iter().map(|row| (row["machine"].as_str().unwrap(), row["tlb_misses"].as_u64().unwrap())).collect();
    let names: Vec<&str> = told.iter().map(|(machine, _)| *machine).collect();
    let first = ["zen5", "zen5+fractured", "zen5+fractured+late", "toy"];
    let guests = ["zen5+nested", "zen5+nested", "zen5", "zen5+nested", "zen5+nested-2m"];
    assert_eq!(names, [&first[..], &guests].concat());
    // Pages of 2 MB fit; in pieces of 4 KB they do not; in pieces of 2 MB they do again.
    assert!(told[1].1 > 10 * told[0].1 && told[2].1 < 2 * told[0].1, "{told:?}");
    let guests = &told[first.len()..];
    assert!(guests[3].1 > 10 * guests[2].1 && guests[4].1 < 2 * guests[2].1, "{told:?}");
    // The same with hosts whose policies are base and thp.
    assert_eq!([guests[0].1, guests[1].1], [guests[3].1, guests[4].1]);
}

/// What the page says of the names that there are is what the program knows.
#[test]
fn the_page_on_machine_files_names_all_replacements_and_index_functions() {
    let _turn = superpage_testing::turn_of("docs");
    let text = fs::read_to_string(root().join("docs/machine-file.md")).unwrap();
    let registered = fs::read_to_string(root().join("crates/mmu/src/machine/names.rs")).unwrap();
    for (list, least) in [("replacement", 4), ("index", 1)] {
        let file = format!("\" in \"tlb/{list}/");
        let names = registered.lines().filter_map(|line| line.split_once(&file)?.0.split_once('"'));
        let names: Vec<&str> = names.map(|(_, name)| name).collect();
        assert!(names.len() > least && names.iter().all(|name| text.contains(name)), "{names:?}");
    }
}
