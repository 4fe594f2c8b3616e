// Virtual memory of a core simulator, whose frames, page sizes and faults are superpage's. Plain
// numbers, in bytes; vmem.h puts ChampSim's types around it. A failure is an exception with
// superpage's sentence.
#ifndef SUPERPAGE_MEMORY_H
#define SUPERPAGE_MEMORY_H

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>
#include "superpage.h"

struct superpage_translation {
  uint64_t physical;   // of the byte that was asked for
  uint64_t page_bytes; // the size of the page that maps it
  bool fault;          // the page was not mapped before, or not with this right
};

class superpage_memory
{
  using ranges = std::vector<std::pair<uint64_t, uint64_t>>; // start and bytes
  static constexpr uint32_t ALL = SUPERPAGE_READ | SUPERPAGE_WRITE | SUPERPAGE_EXECUTE;
  static constexpr unsigned PAGE_BITS = 12, LEVEL_BITS = 9, PTE_BYTES = 8; // x86-64
  static constexpr uint64_t PAGE = 1 << PAGE_BITS;
  static constexpr uint64_t BASE = 1 << 30; // the first GB is left unused, as ChampSim's first MB; pages stay aligned

  superpage* manager = nullptr;
  std::size_t levels;
  ranges mappings;
  std::map<uint32_t, uint32_t> spaces; // one address space for each core
  std::map<std::tuple<uint32_t, std::size_t, uint64_t>, uint64_t> tables;

  static void check(int code)
  {
    if (code != SUPERPAGE_OK) throw std::runtime_error(superpage_message());
  }

  uint32_t space_of(uint32_t cpu)
  {
    if (auto found = spaces.find(cpu); found != spaces.end()) return found->second;
    uint32_t made; // in `spaces` only when all is mapped
    check(superpage_create(manager, &made));
    for (auto [start, bytes] : mappings) check(superpage_map(manager, made, start, bytes, ALL));
    return spaces[cpu] = made;
  }

public:
  // `mappings_file` is of `superpage trace export champsim --events`; if its name is empty, the
  // lower half of the address space is one mapping.
  superpage_memory(uint64_t bytes, std::size_t page_table_levels, const char* policy, const char* sizes, const std::string& mappings_file)
      : levels(page_table_levels), mappings(mappings_file.empty() ? ranges{{0, 1ull << 47}} : read_mappings(mappings_file))
  {
    superpage_config config{bytes > BASE ? bytes - BASE : 0, sizes, policy, nullptr};
    check(superpage_new(&config, &manager));
  }

  superpage_memory(const superpage_memory&) = delete;
  ~superpage_memory() { superpage_free(manager); }

  // Translates as the access would, and populates the page if it must be. ChampSim does not say
  // which access it is: then it counts as a write.
  superpage_translation va_to_pa(uint32_t cpu, uint64_t vaddr, uint32_t access = SUPERPAGE_WRITE)
  {
    superpage_done done;
    int code = superpage_access(manager, space_of(cpu), vaddr, access, &done);
    if (code == SUPERPAGE_UNMAPPED) { // no mapping says that there is memory
      check(superpage_map(manager, space_of(cpu), vaddr & ~(PAGE - 1), PAGE, ALL));
      code = superpage_access(manager, space_of(cpu), vaddr, access, &done);
    }
    check(code);
    if (done.mapping.bytes == 0) throw std::runtime_error("memory is too small: the page was evicted at once");
    return {BASE + done.mapping.physical + (vaddr - done.mapping.address), done.mapping.bytes, done.kind != SUPERPAGE_HIT};
  }

  // Where the page-table entry of a level lies (1 is the last), and whether that took a fault, of
  // the page or of its table. The entry of a superpage is at a level above; the levels below have
  // that entry again, so a walk of all levels reads it from a cache. The root faults on nothing:
  // ChampSim asks for it before there is an access.
  std::pair<uint64_t, bool> get_pte_pa(uint32_t cpu, uint64_t vaddr, std::size_t level, uint32_t access = SUPERPAGE_WRITE)
  {
    bool fault = false;
    if (level < levels) {
      auto page = va_to_pa(cpu, vaddr, access);
      fault = page.fault;
      std::size_t leaf = 1;
      while (page.page_bytes >> shift(leaf + 1) != 0) ++leaf;
      level = std::max(level, leaf);
    }
    std::tuple table{space_of(cpu), level, vaddr >> shift(level + 1)};
    auto found = tables.find(table);
    bool is_new = found == tables.end();
    if (is_new) {
      uint64_t frame;
      check(superpage_wire(manager, &frame));
      found = tables.emplace(table, frame).first;
    }
    return {BASE + found->second + offset(vaddr, level) * PTE_BYTES, fault || is_new};
  }

  // The bits below those that select the entry of a level, and the number of that entry.
  static unsigned shift(std::size_t level) { return PAGE_BITS + LEVEL_BITS * static_cast<unsigned>(level - 1); }
  static uint64_t offset(uint64_t vaddr, std::size_t level) { return vaddr >> shift(level) & ((1 << LEVEL_BITS) - 1); }

  superpage_counts counts() const
  {
    superpage_counts all;
    check(superpage_get_counts(manager, &all));
    return all;
  }

private:
  // The rows `map`: record,process,thread,kind,page,pages,... in pages of 4 KB. All are mapped from
  // the start on, since ChampSim's TLBs hear of no end.
  static ranges read_mappings(const std::string& name)
  {
    ranges mappings;
    std::ifstream file(name);
    for (std::string line; std::getline(file, line);) {
      std::vector<std::string> fields;
      std::istringstream row(line);
      for (std::string field; fields.size() < 6 && std::getline(row, field, ',');)
        fields.push_back(field);
      if (fields.size() == 6 && fields[3] == "map")
        mappings.emplace_back(std::stoull(fields[4]) << PAGE_BITS, std::stoull(fields[5]) << PAGE_BITS);
    }
    if (mappings.empty())
      throw std::runtime_error(name + ": no mappings there; expected a table of superpage trace export champsim --events");
    return mappings;
  }
};

#endif
