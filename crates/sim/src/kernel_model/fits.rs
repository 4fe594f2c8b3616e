//! On which machines a model runs, and with which of its switches.

use super::{KernelModel, LEFT, PAGE};
use crate::Error;
use superpage_mmu::{Groups, Machine, Search};
use superpage_pages::{Bytes, PageSize};

/// The switches that are of the hash table and of handlers: of machines without, they change
/// nothing.
const OF_GROUPS: [&str; 5] = ["handlers", "reclaim", "scatter", "tables", "vsids"];

/// The most pages of memory with a hashed page table.
const MOST_IN_CHAINS: u64 = 1 << 18;

impl KernelModel {
    /// Checks that this kernel can run on the machine with this base page and number of frames.
    ///
    /// # Errors
    /// [`Error::Usage`] says why it cannot.
    pub(crate) fn check_fits(&self, machine: &Machine, base: PageSize, frames: u64) -> Result<(), Error> {
        let refused = |problem: String| Err(Error::Usage(format!("machine {}: {problem}", machine.name)));
        if base.bytes() != PAGE {
            return refused(format!("a model of the kernel (--kernel) is for base pages of 4K, not {base}"));
        }
        let without = [
            (machine.host.is_some(), "a host: its kernel would be the guest's alone"),
            (machine.shadow.is_some(), "shadow superpages: they are made of programs' pages alone"),
            (
                machine.tlb.iter().any(|tlb| tlb.spaces.is_some()),
                "a TLB with `spaces`: its kernel would be one of them",
            ),
        ];
        if let Some((_, what)) = without.into_iter().find(|(has, _)| *has) {
            return refused(format!("--kernel is for machines without {what}"));
        }
        if frames < self.pages() + LEFT {
            let kilobytes = |pages: u64| pages * PAGE / 1024;
            let (need, left) = (kilobytes(self.pages()), kilobytes(frames.saturating_sub(self.pages())));
            return refused(format!(
                "the kernel itself takes {need} KB of memory, which leaves {left} KB for programs: give at least {} KB with --memory",
                kilobytes(self.pages() + LEFT)
            ));
        }
        let chains = machine.clustered.as_ref().is_some_and(|table| table.pages == 1);
        if chains && frames > MOST_IN_CHAINS {
            let most = Bytes(MOST_IN_CHAINS * PAGE);
            return refused(format!(
                "the kernel maps all memory, and a hashed page table then has chains that it takes minutes to go through: give at most {most} with --memory"
            ));
        }
        let Some(groups) = &machine.groups else {
            if self.switches.program_blocks.is_on() {
                return refused("program-blocks=on is for machines with blocks, as ppc603".into());
            }
            if !self.switches.table.is_on() {
                return refused("table=off is for machines whose TLBs software refills, as ppc603".into());
            }
            let given = OF_GROUPS.iter().find(|key| self.given.iter().any(|given| given == *key));
            return given.map_or(Ok(()), |key| {
                refused(format!("{key} is for machines with a hash table, as ppc603: here it would do nothing"))
            });
        };
        if !self.switches.table.is_on() && groups.search != Search::Software {
            return refused("table=off is for machines whose TLBs software refills, as ppc603".into());
        }
        self.check_blocks(frames, groups).or_else(refused)
    }

    /// Checks that the kernel's memory lies where segments and blocks can translate it.
    fn check_blocks(&self, frames: u64, groups: &Groups) -> Result<(), String> {
        let (first, switches) = (self.memory.first_page, &self.switches);
        if self.device_page(frames) + self.memory.device_pages > 1 << 20 {
            return Err(
                "the kernel's memory and devices must end within its first 4 GB: give less with --memory".into()
            );
        }
        let wanted = [
            ("blocks", switches.blocks),
            ("device-blocks", switches.device_blocks),
            ("program-blocks", switches.program_blocks),
        ];
        let on: Vec<&str> = wanted.iter().filter(|(_, switch)| switch.is_on()).map(|(key, _)| *key).collect();
        if on.len() > groups.blocks {
            let (has, need) = (groups.blocks, on.len());
            return Err(format!(
                "of registers for blocks of data it has {has}, and {need} are needed: switch off some of {}",
                on.join(", ")
            ));
        }
        if !switches.blocks.is_on() {
            return Ok(());
        }
        if !first.is_multiple_of(frames.next_power_of_two()) {
            return Err(format!(
                "memory.first-page of the kernel's model, {first:#x}, must be aligned to a block that holds all memory"
            ));
        }
        if frames * PAGE > groups.block_size {
            let (block, memory) = (Bytes(groups.block_size), Bytes(frames * PAGE));
            return Err(format!(
                "its largest block has {block}, less than the {memory} of memory: give less with --memory, or blocks=off"
            ));
        }
        Ok(())
    }
}
