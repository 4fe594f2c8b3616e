// In place of ChampSim's inc/vmem.h, and of src/vmem.cc, which is left out: the same interface, on
// superpage. The environment says what ChampSim's configuration has no place for:
//   SUPERPAGE_POLICY    as superpage sim --policy takes it: reservation, thp, base ...
//   SUPERPAGE_SIZES     page sizes, by default 4K,2M
//   SUPERPAGE_MAPPINGS  a file of superpage trace export champsim --events
#ifndef VMEM_H
#define VMEM_H

#include <cstdlib>
#include <optional>

#include "address.h"
#include "champsim.h"
#include "chrono.h"
#include "dram_controller.h"
#include "superpage_memory.h"

using pte_entry = champsim::data::size<long long, std::ratio<8>>;

class VirtualMemory
{
  using duration = champsim::chrono::clock::duration;

  static const char* setting(const char* name, const char* otherwise)
  {
    return std::getenv(name) != nullptr ? std::getenv(name) : otherwise;
  }

  superpage_memory memory;

  duration penalty(bool fault) const { return fault ? minor_fault_penalty : duration::zero(); }
  static uint64_t first_byte(champsim::page_number page) { return page.to<uint64_t>() << LOG2_PAGE_SIZE; }

public:
  const duration minor_fault_penalty;
  const std::size_t pt_levels;
  const pte_entry pte_page_size;

  // Tables have 512 entries, whatever page_table_page_size says; frames are not shuffled.
  VirtualMemory(champsim::data::bytes page_table_page_size, std::size_t levels, duration minor_penalty, MEMORY_CONTROLLER& dram,
                std::optional<uint64_t> = {})
      : memory(static_cast<uint64_t>(dram.size().count()), levels, setting("SUPERPAGE_POLICY", "reservation"),
               setting("SUPERPAGE_SIZES", "4K,2M"), setting("SUPERPAGE_MAPPINGS", "")),
        minor_fault_penalty(minor_penalty), pt_levels(levels), pte_page_size(page_table_page_size)
  {
  }

  champsim::data::bits shamt(std::size_t level) const { return champsim::data::bits{superpage_memory::shift(level)}; }
  uint64_t get_offset(champsim::address vaddr, std::size_t level) const { return superpage_memory::offset(vaddr.to<uint64_t>(), level); }
  uint64_t get_offset(champsim::page_number page, std::size_t level) const { return superpage_memory::offset(first_byte(page), level); }
  std::size_t available_ppages() const { return memory.counts().free_bytes >> LOG2_PAGE_SIZE; }

  std::pair<champsim::page_number, duration> va_to_pa(uint32_t cpu, champsim::page_number page)
  {
    auto found = memory.va_to_pa(cpu, first_byte(page));
    return {champsim::page_number{found.physical >> LOG2_PAGE_SIZE}, penalty(found.fault)};
  }

  // The size, in bytes, of the page that maps this one: for TLBs that have entries of several sizes.
  uint64_t page_bytes(uint32_t cpu, champsim::page_number page) { return memory.va_to_pa(cpu, first_byte(page)).page_bytes; }

  std::pair<champsim::address, duration> get_pte_pa(uint32_t cpu, champsim::page_number page, std::size_t level)
  {
    auto [physical, fault] = memory.get_pte_pa(cpu, first_byte(page), level);
    return {champsim::address{physical}, penalty(fault)};
  }
};

#endif
