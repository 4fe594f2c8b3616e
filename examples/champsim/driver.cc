// Feeds each access of a ChampSim trace to the adapter and prints what the manager counted.
//   xz -dc gzip.champsim.xz | driver reservation gzip.events.csv 4K,2M
#include <cstdio>
#include <cstring>
#include <exception>

#include "superpage_memory.h"

namespace
{
constexpr unsigned RECORD = 64, STORES = 16, LOADS = 32, LEVELS = 5; // as ChampSim's trace_instruction.h

uint64_t word(const unsigned char* record, unsigned at)
{
  uint64_t value;
  std::memcpy(&value, record + at, sizeof value);
  return value;
}

void access(superpage_memory& memory, uint64_t address, uint32_t access)
{
  auto found = memory.va_to_pa(0, address, access);
  if (found.fault) // a walk of what a core would walk now
    for (unsigned level = LEVELS; level > 0; --level)
      memory.get_pte_pa(0, address, level, access);
}

void run(const char* policy, const char* mappings, const char* sizes)
{
  superpage_memory memory(8ull << 30, LEVELS, policy, sizes, mappings);
  unsigned char record[RECORD];
  std::size_t read, records = 0;
  for (; (read = std::fread(record, 1, RECORD, stdin)) == RECORD; ++records) {
    access(memory, word(record, 0), SUPERPAGE_EXECUTE);
    for (unsigned at = LOADS; at < RECORD; at += 8)
      if (uint64_t address = word(record, at))
        access(memory, address, SUPERPAGE_READ);
    for (unsigned at = STORES; at < LOADS; at += 8)
      if (uint64_t address = word(record, at))
        access(memory, address, SUPERPAGE_WRITE);
  }
  if (read != 0 || records == 0 || std::ferror(stdin))
    throw std::runtime_error("the trace is empty, or does not end with a whole record of 64 bytes");
  auto row = [](const char* name, uint64_t value) { std::printf("%s %llu\n", name, static_cast<unsigned long long>(value)); };
  auto counts = memory.counts();
  row("faults", counts.faults);
  for (uint64_t at = 0; at < counts.sizes; ++at) {
    auto& size = counts.size[at];
    std::printf("size %llu\n", static_cast<unsigned long long>(size.bytes));
    row("  faults", size.faults);
    row("  mapped", size.mapped);
    row("  promotions", size.promotions);
  }
  row("reservations_made", counts.reservations_made);
  row("bytes_zeroed", counts.bytes_zeroed);
  row("bytes_copied", counts.bytes_copied);
  row("resident_bytes", counts.resident_bytes);
  row("peak_resident_bytes", counts.peak_resident_bytes);
}
} // namespace

int main(int arguments, char** argument)
{
  try {
    if (arguments < 2)
      throw std::runtime_error("usage: driver POLICY [MAPPINGS [SIZES]] < TRACE, uncompressed");
    run(argument[1], arguments > 2 ? argument[2] : "", arguments > 3 ? argument[3] : "4K,2M");
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "driver: %s\n", error.what());
    return 2;
  }
}
