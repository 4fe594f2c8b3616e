//! Page tables that come with traces: drmemtrace's `v2p.textproto`, or the physical addresses in a
//! trace.
//!
//! The file is text: groups of pages of one size, each page with its first byte in virtual and in
//! physical memory. As in the tool's own reader (`reader/v2p_reader.cpp`) all groups have one page
//! size, numbers are decimal or, with `0x`, hexadecimal, and lines that begin with `#` are
//! comments.

use crate::Error;
use crate::file::open_file;
use hashbrown::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use superpage_pages::{Bytes, PageSize};

/// The longest line accepted.
const MOST_LINE: u64 = 1 << 16;

/// Extents whose contiguity is of interest: a page of 64 KB in the TLB, a huge page, and a huge
/// page of the next level.
const EXTENTS: [u64; 3] = [64 << 10, 2 << 20, 1 << 30];

/// Which physical page each virtual page is on.
#[derive(Debug)]
pub(super) struct PageTable {
    /// Where it is from.
    from: String,
    size: PageSize,
    /// The numbers of virtual pages and of their physical ones, by virtual pages.
    pages: Vec<(u64, u64)>,
}

impl PageTable {
    /// Of pages of this size, by their numbers.
    pub(super) fn new(from: String, size: PageSize, pages: &HashMap<u64, u64>) -> PageTable {
        let mut pages: Vec<_> = pages.iter().map(|(&virtual_page, &physical)| (virtual_page, physical)).collect();
        pages.sort_unstable();
        PageTable { from, size, pages }
    }

    /// Reads a `v2p.textproto`. Costs 16 bytes of memory a page.
    pub(super) fn read(path: &Path) -> Result<PageTable, Error> {
        let mut text = BufReader::new(open_file(path)?);
        let mut parser = Parser::default();
        let wrong = |what: String, problem: String| Error::input(format!("{}: {what}", path.display()), problem);
        let (mut line, mut number) = (Vec::new(), 0);
        loop {
            line.clear();
            let read = (&mut text).take(MOST_LINE).read_until(b'\n', &mut line);
            let read = read.map_err(|source| Error::Io { path: path.to_owned(), source })?;
            if read == 0 {
                break;
            }
            number += 1;
            let parsed = match std::str::from_utf8(&line) {
                _ if read as u64 == MOST_LINE => Err(format!("is longer than {MOST_LINE} bytes")),
                Ok(line) => parser.line(line),
                Err(_) => Err("is not text".to_owned()),
            };
            parsed.map_err(|problem| {
                let expected = "expected drmemtrace's v2p.textproto, such as \"virtual_address: 0x7f0000200000\"";
                wrong(format!("line {number}"), format!("{problem}; {expected}"))
            })?;
        }
        let from = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        parser.table(from).map_err(|problem| wrong(format!("after line {number}"), problem))
    }

    /// How many extents of that many bytes are mapped whole, to contiguous physical memory of the
    /// same alignment.
    fn contiguous(&self, bytes: u64) -> u64 {
        let pages = bytes >> self.size.shift();
        let whole = |extent: &&[(u64, u64)]| {
            let (first, physical) = extent[0];
            let follows = |(place, &(_, page)): (usize, &(u64, u64))| page == physical + place as u64;
            extent.len() as u64 == pages
                && first % pages == 0
                && physical % pages == 0
                && extent.iter().enumerate().all(follows)
        };
        self.pages.chunk_by(|one, next| one.0 / pages == next.0 / pages).filter(whole).count() as u64
    }

    /// A sentence on its pages, their contiguity, and how many of these pages of 4 KB it maps.
    pub(super) fn describe(&self, touched: impl Iterator<Item = u64>) -> String {
        let (mut mapped, mut all) = (0u64, 0u64);
        for page in touched {
            let page = page >> (self.size.shift() - 12);
            mapped += u64::from(self.pages.binary_search_by_key(&page, |&(page, _)| page).is_ok());
            all += 1;
        }
        let share = |part: u64, of: u64| format!("{:.1} %", 100.0 * part as f64 / of.max(1) as f64);
        let count = self.pages.len() as u64;
        let extents = EXTENTS.into_iter().filter(|&bytes| bytes > self.size.bytes()).map(|bytes| {
            let (extents, pages) = (self.contiguous(bytes), bytes >> self.size.shift());
            let size = PageSize::from_bytes(bytes).expect("a power of two");
            format!("{size}: {} ({extents})", share(extents * pages, count))
        });
        let extents: Vec<_> = extents.collect();
        let extents = if extents.is_empty() {
            String::new()
        } else {
            format!("; of them in extents that are aligned and physically contiguous, of {}", extents.join(", "))
        };
        let (from, size, bytes) = (&self.from, self.size, Bytes(count << self.size.shift()));
        format!(
            "{from}: pages of {size}: {count} ({bytes}){extents}; touched pages that it maps: {}",
            share(mapped, all)
        )
    }
}

/// What was read of a file so far.
#[derive(Default)]
struct Parser {
    size: Option<u64>,
    /// The page whose physical address is to come.
    page: Option<u64>,
    pages: Vec<(u64, u64)>,
    /// Braces that are open.
    open: u64,
}

impl Parser {
    fn line(&mut self, line: &str) -> Result<(), String> {
        if line.trim_start().starts_with('#') {
            return Ok(());
        }
        let spaced = line.replace('{', " { ").replace('}', " } ").replace(':', " : ");
        let mut words = spaced.split_whitespace();
        while let Some(word) = words.next() {
            match word {
                "{" => self.open += 1,
                "}" => self.open = self.open.checked_sub(1).ok_or("closes a brace that is not open")?,
                "page_size" => {
                    let size = value(&mut words)?;
                    if self.size.is_some_and(|before| before != size) {
                        return Err(format!("has page_size {size}, another than before; only one size is read"));
                    }
                    self.size = Some(size);
                }
                "virtual_address" => match self.page.replace(value(&mut words)?) {
                    None => {}
                    Some(_) => return Err("has a second virtual_address without a physical_address between".to_owned()),
                },
                "physical_address" => {
                    let page = self.page.take().ok_or("has a physical_address without a virtual_address before it")?;
                    self.pages.push((page, value(&mut words)?));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn table(mut self, from: String) -> Result<PageTable, String> {
        if self.open != 0 || self.page.is_some() {
            return Err("ends within a group; expected a whole file: fetch it again".to_owned());
        }
        let size = self.size.ok_or("has no page_size; expected drmemtrace's v2p.textproto")?;
        let size = PageSize::from_bytes(size).filter(|size| size.shift() >= 12);
        let size = size.ok_or("its page_size is not a power of two from 4096 on; expected such as 0x200000")?;
        for (page, physical) in &mut self.pages {
            for address in [page, physical] {
                if *address % size.bytes() != 0 {
                    return Err(format!(
                        "its address {address:#x} is not a multiple of its page_size {size}; expected first bytes"
                    ));
                }
                *address >>= size.shift();
            }
        }
        self.pages.sort_unstable();
        if let Some(twice) = self.pages.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let address = twice[0].0 << size.shift();
            return Err(format!("has virtual_address {address:#x} twice; expected each page once"));
        }
        Ok(PageTable { from, size, pages: self.pages })
    }
}

/// The number after a key and a colon.
fn value<'a>(words: &mut impl Iterator<Item = &'a str>) -> Result<u64, String> {
    let colon = words.next().filter(|&word| word == ":");
    let word = colon.and_then(|_| words.next()).ok_or("has a key without a number")?;
    let number = match word.strip_prefix("0x").or(word.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => word.parse(),
    };
    number.map_err(|_| format!("has \"{}\" where a number belongs", word.escape_debug()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Result<PageTable, String> {
        let mut parser = Parser::default();
        text.lines().try_for_each(|line| parser.line(line))?;
        parser.table("v2p".to_owned())
    }

    fn mapping(page: u64, physical: u64) -> String {
        format!("address_mapping {{\n virtual_address: {:#x}\n physical_address: {}\n}}\n", page << 12, physical << 12)
    }

    #[test]
    fn extents_are_whole_aligned_and_contiguous() {
        // Of 64K: 16 pages in order; 16 of another alignment; 15; 16 of which two are exchanged.
        let mut text = "# made\ngroup {\n page_size: 0x1000\n".to_owned();
        for page in 0..16 {
            text += &mapping(32 + page, 160 + page);
            text += &mapping(64 + page, 1001 + page);
            text += &mapping(128 + page, 320 + [1, 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15][page as usize]);
        }
        (0..15).for_each(|page| text += &mapping(96 + page, 480 + page));
        let table = table(&(text + "}\n")).unwrap();
        assert_eq!((table.pages.len(), table.contiguous(64 << 10), table.contiguous(2 << 20)), (63, 1, 0));
        let said = table.describe([32, 33, 64, 1000].into_iter());
        let expected = "v2p: pages of 4K: 63 (252 KB); of them in extents that are aligned and physically contiguous, of \
                        64K: 25.4 % (1), 2M: 0.0 % (0), 1G: 0.0 % (0); touched pages that it maps: 75.0 %";
        assert_eq!(said, expected);
    }

    #[test]
    fn a_huge_page_maps_all_small_ones_in_it() {
        let table = table("page_size: 2097152 m { virtual_address: 0x400000 physical_address: 0x200000 }").unwrap();
        let said = table.describe([0x3ff, 0x400, 0x5ff, 0x600].into_iter());
        assert!(
            said.contains("pages of 2M: 1 (2.00 MB); ") && said.ends_with("touched pages that it maps: 50.0 %"),
            "{said}"
        );
    }

    #[test]
    fn mistakes_are_refused() {
        let wrong = |text: &str| table(text).expect_err(text);
        let page = "page_size: 4096 ";
        assert!(wrong("").contains("no page_size"));
        assert!(wrong("page_size: 4096 page_size: 8192").contains("another than before"));
        assert!(wrong("page_size: 1000").contains("not a power of two"));
        assert!(wrong("page_size: 512").contains("from 4096 on"));
        assert!(wrong("page_size 4096").contains("without a number"));
        assert!(wrong("page_size: x").contains("\"x\" where a number belongs"));
        assert!(wrong("page_size: -1").contains("where a number belongs"));
        assert!(wrong("g {").contains("ends within a group"));
        assert!(wrong("}").contains("not open"));
        assert!(wrong(&format!("{page}virtual_address: 4096")).contains("ends within a group"));
        assert!(wrong(&format!("{page}virtual_address: 0 virtual_address: 0")).contains("a second virtual_address"));
        assert!(wrong(&format!("{page}physical_address: 4096")).contains("without a virtual_address"));
        assert!(wrong(&format!("{page}virtual_address: 1 physical_address: 0")).contains("0x1 is not a multiple"));
        let twice = format!("{page}{}{}", mapping(1, 2), mapping(1, 3));
        assert!(wrong(&twice).contains("0x1000 twice"));
    }
}
