//! The adapter for ChampSim: what it counts is what the simulator counts of the imported trace.

use crate::build::{built, printed, root};
use std::fmt::Write;
use std::fs::{self, File};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use superpage_sim::{Conditions, Row, plan, run};
use superpage_trace::file::Reader;
use superpage_trace::{Batch, Error, Info, Source, export, import};

/// The first batches of a trace.
struct First(Reader, usize);

impl Source for First {
    fn info(&self) -> &Info {
        self.0.info()
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        batch.clear();
        self.1 = self.1.saturating_sub(1);
        if self.1 == 0 { Ok(false) } else { self.0.fill(batch) }
    }
}

/// What the driver prints, of a row of the simulator.
fn expected(row: &Row) -> String {
    let mut text = format!("faults {}\n", row.faults);
    for (at, (size, mapped)) in row.pages.iter().enumerate() {
        let latency = row.fault_latency;
        let faults = if at == 0 { latency.base_page.faults } else { latency.superpage.faults };
        let promotions =
            row.promotions_by_size.iter().find(|(of, _)| of == size).map_or(0, |(_, promotions)| *promotions);
        let bytes = size.bytes();
        write!(text, "size {bytes}\n  faults {faults}\n  mapped {mapped}\n  promotions {promotions}\n").unwrap();
    }
    let Row { reservations_made, bytes_zeroed, bytes_copied, .. } = row;
    write!(text, "reservations_made {reservations_made}\nbytes_zeroed {bytes_zeroed}\n").unwrap();
    let (end, peak) = (row.end_resident_bytes, row.peak_resident_bytes);
    write!(text, "bytes_copied {bytes_copied}\nresident_bytes {end}\npeak_resident_bytes {peak}\n").unwrap();
    text
}

#[test]
fn rows_are_those_of_the_simulator() {
    let folder = tempfile::tempdir().unwrap();
    let Some(driver) = built("c++", "-std=c++17", &root("examples/champsim/driver.cc"), folder.path()) else { return };
    let [records, part, events] = ["records", "part", "events"].map(|name| folder.path().join(name));
    let reader = Reader::open(&root("corpus/perl.sp")).unwrap();
    export::export("champsim", &mut First(reader, 60), Some(&records), None).unwrap();
    let imported = || import::import("champsim", &records, false, None).unwrap();
    export::export("champsim", &mut imported(), Some("/dev/null".as_ref()), Some(&events)).unwrap();
    // Two sizes; no swap space; the gigabyte that the adapter leaves free is not in memory.
    let sizes = Some(vec!["2M".parse().unwrap()]);
    let conditions = Conditions { sizes, memory: Some(7 << 30), swap: Some(0), ..Conditions::default() };
    let policies =
        ["base", "reservation", "thp", "eager", "reservation:preempt=off", "base:zero-page=base"].map(String::from);
    let setups = plan(&["zen5".into()], &policies, &conditions).unwrap();
    let rows = run(&setups, &mut imported(), &AtomicBool::new(false), &|_| {}).unwrap();
    assert_eq!(rows.len(), policies.len());
    for (policy, row) in policies.iter().zip(&rows) {
        let mut command = Command::new(&driver);
        let done = command.arg(policy).arg(&events).stdin(File::open(&records).unwrap()).output().unwrap();
        assert!(done.status.success(), "{policy}: {}", String::from_utf8_lossy(&done.stderr));
        assert_eq!(String::from_utf8(done.stdout).unwrap(), expected(row), "{policy}");
    }
    // A trace without a whole last record is refused, and so is one without any.
    let all = fs::read(&records).unwrap();
    for short in [&all[..all.len() - 1], &[]] {
        fs::write(&part, short).unwrap();
        let done = Command::new(&driver).arg("base").stdin(File::open(&part).unwrap()).output().unwrap();
        assert!(done.status.code() == Some(2) && done.stdout.is_empty(), "{}", done.status);
    }
    // It is a trace in which superpages matter.
    assert!(rows[1].promotions_by_size[0].1 > 5 && rows[1].faults > 1000, "{:?}", rows[1]);
}

/// As much of ChampSim's types as the adapter uses, with the names and meanings of its headers.
const TYPES: &str = r#"
#pragma once
#include <chrono>
#include <cstdint>
#include <ratio>
constexpr unsigned LOG2_PAGE_SIZE = 12;
namespace champsim
{
template <int Kind>
struct number {
  uint64_t value = 0;
  explicit number(uint64_t given) : value(given) {}
  template <typename T>
  T to() const { return static_cast<T>(value); }
};
using address = number<0>;
using page_number = number<1>;
namespace data
{
template <typename Rep, typename Unit>
struct size {
  Rep value = 0;
  explicit size(Rep given) : value(given) {}
  template <typename Other>
  size(size<Rep, Other> other) : value(other.value * Other::num / Unit::num) {}
  Rep count() const { return value; }
};
using bytes = size<long long, std::ratio<1>>;
enum class bits : unsigned {};
} // namespace data
namespace chrono
{
struct clock { using duration = std::chrono::duration<long long, std::pico>; };
} // namespace chrono
} // namespace champsim
struct MEMORY_CONTROLLER {
  champsim::data::bytes bytes;
  champsim::data::bytes size() const { return bytes; }
};
"#;

/// Translations and walks, as ChampSim's page-table walker asks for them.
const WALKS: &str = r#"
#include "vmem.h"
#include <cassert>
#include <cstdio>
#include <set>
using champsim::page_number;
// What fails once fails again: no table and no space is kept half made.
void failures(const char* mappings)
{
  constexpr uint64_t ROOT = 5, MEMORY = (1 << 30) + (1 << 16);
  auto fails = [](superpage_memory& memory, uint32_t cpu) {
    try {
      memory.get_pte_pa(cpu, 0, ROOT);
      return false;
    } catch (const std::runtime_error&) {
      return true;
    }
  };
  superpage_memory full{MEMORY, ROOT, "base", "4K", ""}, unmappable{MEMORY, ROOT, "base", "4K", mappings};
  uint32_t cpu = 0;
  while (!fails(full, cpu)) ++cpu;
  assert(cpu > 0 && fails(full, cpu));
  assert(fails(unmappable, 0) && fails(unmappable, 0));
}
int main(int, char** argument)
{
  failures(argument[1]);
  MEMORY_CONTROLLER dram{champsim::data::bytes{4ll << 30}};
  VirtualMemory vmem{champsim::data::bytes{4096}, 5, champsim::chrono::clock::duration{200}, dram, 1};
  assert(vmem.pte_page_size.count() == 512 && vmem.available_ppages() == 3 << 18);
  auto root = vmem.get_pte_pa(0, page_number{0}, 5).first.to<uint64_t>();
  assert(root >= 1 << 30 && root % 4096 == 0 && vmem.available_ppages() < 3 << 18);
  std::set<uint64_t> frames;
  int penalties = 0;
  for (uint64_t page = 0x12345000; page < 0x12345400; ++page)
    for (uint32_t cpu = 0; cpu < 2; ++cpu) {
      std::set<uint64_t> entries;
      for (std::size_t level = 5; level > 0; --level)
        entries.insert(vmem.get_pte_pa(cpu, page_number{page}, level).first.to<uint64_t>());
      // The entry of a page of 2 MB is in the table above.
      assert(entries.size() == (vmem.page_bytes(cpu, page_number{page}) == 4096 ? 5 : 4));
      auto [frame, penalty] = vmem.va_to_pa(cpu, page_number{page});
      assert(penalty.count() == 0); // the walk had it
      penalties += vmem.get_pte_pa(cpu, page_number{page + 1}, 4).second.count() > 0;
      assert(frames.insert(frame.to<uint64_t>()).second && frame.to<uint64_t>() >= 1 << 18);
    }
  assert(vmem.page_bytes(0, page_number{0x12345200}) == 2 << 20);
  auto first = vmem.va_to_pa(0, page_number{0x12345200}).first.to<uint64_t>();
  assert(first % 512 == 0 && vmem.va_to_pa(0, page_number{0x12345201}).first.to<uint64_t>() == first + 1);
  assert(vmem.get_offset(champsim::address{0x3000}, 1) == 3 && vmem.get_offset(page_number{0x400}, 2) == 2);
  assert(vmem.shamt(2) == champsim::data::bits{21} && penalties > 0);
  std::printf("ok\n");
}
"#;

#[test]
fn it_stands_in_for_virtual_memory() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("champsim.h", TYPES);
    ["address.h", "chrono.h", "dram_controller.h"].iter().for_each(|name| write(name, "#include \"champsim.h\"\n"));
    for name in ["vmem.h", "superpage_memory.h"] {
        write(name, &fs::read_to_string(root("examples/champsim").join(name)).unwrap());
    }
    write("walks.cc", WALKS);
    write("mappings.csv", "record,process,thread,kind,page,pages\n0,0,0,map,16,0\n");
    if let Some(program) = built("c++", "-std=c++17", &folder.path().join("walks.cc"), folder.path()) {
        assert_eq!(printed(&program, &[folder.path().join("mappings.csv").to_str().unwrap()]), "ok\n");
    }
}
