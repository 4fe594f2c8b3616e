//! What takes a program's private memory, and how it is brought to ask for huge pages.

use super::super::mapping::Mapping;
use super::super::reach::{Library, library};
use super::origin::Origin;

/// What takes most of a program's private memory, judged by the libraries that it has mapped.
pub(super) enum Allocator {
    /// A JVM, for its heap.
    Java,
    /// One that reads an environment variable: that variable, with what it has now.
    Variable(String),
    /// Of gperftools. It takes a MB at a time, so that first touches find no whole block. From a
    /// pool (`TCMALLOC_MEMFS_MALLOC_PATH`) its memory would be shared with the processes that it
    /// forks.
    Tcmalloc,
    /// The program itself, as in Go; or an allocator whose option is set already.
    Other,
}

impl Allocator {
    /// That of a program with these mappings. The heap of a JVM may be `shared` memory (ZGC), and
    /// the JVM may ask for huge pages already: then what is meant is the rest of its memory.
    pub(super) fn of(mappings: &[Mapping], origin: &Origin, shared: bool) -> Allocator {
        let maps = |name: &str| maps(mappings, name);
        if is_java(mappings) && !shared && !asks(origin) {
            return Allocator::Java;
        }
        // V8 maps its heap itself, as a JVM does: glibc's allocator has a small part of it.
        let maps_itself = is_java(mappings) || maps("libtcmalloc") || maps("node");
        let gnu = library(mappings.iter().map(|mapping| mapping.name.clone())) == Library::Gnu;
        let known = [
            (maps("libjemalloc.so"), "MALLOC_CONF", "thp:always", ','),
            (maps("libmimalloc.so"), "MIMALLOC_ALLOW_LARGE_OS_PAGES", "1", ','),
            ((gnu || origin.code_at_start.static_gnu) && !maps_itself, "GLIBC_TUNABLES", "glibc.malloc.hugetlb=1", ':'),
        ];
        let variable = known.into_iter().find(|(there, ..)| *there);
        match variable.and_then(|(_, name, option, between)| origin.with(name, option, between)) {
            Some(variable) => Allocator::Variable(variable),
            None if maps("libtcmalloc") => Allocator::Tcmalloc,
            None => Allocator::Other,
        }
    }
}

/// Whether a program has mapped a file whose name begins so.
pub(super) fn maps(mappings: &[Mapping], name: &str) -> bool {
    mappings.iter().any(|mapping| mapping.name.rsplit('/').next().unwrap_or_default().starts_with(name))
}

/// Whether the program is a JVM.
pub(super) fn is_java(mappings: &[Mapping]) -> bool {
    maps(mappings, "libjvm.so")
}

/// Whether a JVM asks for huge pages for its heap.
pub(super) fn asks(origin: &Origin) -> bool {
    origin.arguments.iter().any(|argument| argument == "-XX:+UseTransparentHugePages")
}
