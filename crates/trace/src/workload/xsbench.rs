//! `xsbench`: look-ups of cross sections as XSBench makes them, the kernel of Monte Carlo neutron
//! transport (Tramm et al., "XSBench: the development and verification of a performance abstraction
//! for Monte Carlo reactor analysis", PHYSOR 2014; the program from version 19 on, with its
//! unionized grid and independent look-ups, `-m event`).
//!
//! There are `nuclides`, each with a sorted grid of `gridpoints` random energies. The program holds
//! four arrays, each at the next multiple of 1 GB: the grids, 48 bytes a point, an energy and five
//! cross sections; the energies of all points sorted, 8 bytes each; the index, for each of these
//! energies and each nuclide 4 bytes, the last point of the nuclide's grid that is not above it;
//! and the materials' nuclides and concentrations, 12 bytes each. With its defaults, the
//! benchmark's size `large`, that is 5.5 GB; 2000 gridpoints take 0.98 GB, 68 nuclides (`small`)
//! 0.24 GB. The part `fill` writes the arrays in order; the sorting is not in the stream.
//!
//! The part `look-up` is `lookups` times: an energy and one of 12 materials are drawn, materials by
//! their shares in the reactor's volume; a binary search through the sorted energies finds the
//! energy's row of the index; for each nuclide of the material its number, its concentration, its
//! entry in that row, and all of the two gridpoints around the energy are read. The fuel has all
//! nuclides but 34, the others 4 to 27. The benchmark makes 17 M look-ups, the default here is
//! fewer.
//!
//! Grids and energies are really drawn, sorted and searched. The index is not stored but computed
//! by a search in the nuclide's grid: 16 bytes of memory for each gridpoint, 64 MB with the
//! defaults. Instructions are assumed: 4 for a step of a search, 3 for other references, which
//! leaves out most of the arithmetic on cross sections.

use super::Kind;
use super::parameters::{MOST_BYTES, MOST_COUNT, Parameter, Values};
use super::program::{Out, Pass, Program, REGION, Running, next_region};
use crate::{Error, Event, Info, Source};
use superpage_pages::{Access, Random};

pub(super) const KIND: Kind = Kind {
    name: "xsbench",
    help: "look-ups of cross sections of nuclides by energy (XSBench)",
    parameters: &[
        Parameter { name: "nuclides", default: "355", help: "the number of nuclides, from 68" },
        Parameter { name: "gridpoints", default: "11303", help: "energies of each" },
        Parameter { name: "lookups", default: "1M", help: "the number of look-ups" },
        Parameter { name: "seed", default: "1", help: "chooses energies and materials" },
    ],
    start,
};

/// Bytes of a gridpoint: an energy and five cross sections.
const POINT: u64 = 48;

/// Instructions of a reference, and of a step of the search.
const INSTRUCTIONS: u32 = 3;
const SEARCH: u32 = 4;

/// Look-ups in a step.
const BLOCK: u64 = 32;

/// The nuclides of the smaller of the benchmark's two reactors; those of the larger from here on
/// are all in its fuel.
const SMALL: u32 = 68;

/// Nuclides of water with boron, cladding, and steel of the pressure vessel and of the reflectors.
const WATER: [u32; 4] = [24, 41, 4, 5];
const CLADDING: [u32; 5] = [63, 64, 65, 66, 67];
const STEEL: [u32; 17] = [19, 20, 21, 22, 35, 36, 37, 38, 39, 25, 49, 50, 51, 11, 12, 13, 14];
const VESSEL: [u32; 10] = [27, 28, 29, 30, 31, 32, 26, 6, 16, 17];
/// Those of the fuel of the smaller reactor.
const FUEL: [u32; 34] = [
    58, 59, 60, 61, 40, 42, 43, 44, 45, 46, 1, 2, 3, 7, 8, 9, 10, 29, 57, 47, 48, 0, 62, 15, 33, 34, 52, 53, 54, 55,
    56, 18, 23, 41,
];

/// The volume up to and with each material, in thousandths.
const VOLUMES: [u64; 12] = [140, 192, 467, 601, 755, 819, 885, 940, 948, 963, 988, 1000];

fn start(values: &Values) -> Result<Box<dyn Source>, Error> {
    let nuclides = values.count("nuclides", SMALL.into()..=1000)?;
    let gridpoints = values.count("gridpoints", 2..=10_000_000)?;
    let lookups = values.count("lookups", 0..=MOST_COUNT)?;
    let seed = values.seed()?;
    let layout = Layout::new(nuclides, gridpoints);
    if layout.rows().saturating_mul(4 * nuclides) > MOST_BYTES {
        return Err(values.wrong("gridpoints", "a number with which the index has at most 16T bytes"));
    }
    let fill = layout.fill().iter().map(Pass::pages).sum::<u64>();
    // A reference of each step of the search, and about 6 runs for a nuclide, of which a material
    // has 56 on average.
    let each = u64::from(layout.rows().ilog2()) + 6 * (14 * (nuclides - 34) + 11 * 86) / 100;
    let memory = 2 * 8 * layout.rows();
    let info = Info { runs: Some(fill + lookups.saturating_mul(each)), memory, ..Info::default() };
    let workload = Workload { layout, left: lookups, random: Random::new(seed), data: None, state: State::Start };
    Ok(Running::described(values, workload, info))
}

/// Where the arrays are.
#[derive(Clone, Copy)]
struct Layout {
    nuclides: u64,
    gridpoints: u64,
    grids: u64,
    energies: u64,
    index: u64,
    materials: u64,
}

impl Layout {
    fn new(nuclides: u64, gridpoints: u64) -> Layout {
        let rows = nuclides * gridpoints;
        let grids = REGION;
        let energies = next_region(grids, POINT * rows);
        let index = next_region(energies, 8 * rows);
        let materials = next_region(index, 4 * nuclides * rows);
        Layout { nuclides, gridpoints, grids, energies, index, materials }
    }

    /// The gridpoints of all nuclides.
    fn rows(&self) -> u64 {
        self.nuclides * self.gridpoints
    }

    /// Room for the nuclides of a material: for as many as the fuel has.
    fn room(&self) -> u64 {
        self.nuclides - 34
    }

    /// The arrays, their bytes and those of an element. An entry of a material is a number of 4
    /// bytes; its concentrations, 8 bytes each, lie behind the numbers of all materials.
    fn arrays(&self) -> [(u64, u64, u64); 4] {
        [
            (self.grids, POINT * self.rows(), 8),
            (self.energies, 8 * self.rows(), 8),
            (self.index, 4 * self.nuclides * self.rows(), 4),
            (self.materials, 12 * 12 * self.room(), 4),
        ]
    }

    /// The passes that write them.
    fn fill(&self) -> [Pass; 4] {
        self.arrays().map(|(start, bytes, step)| Pass::new(start, bytes, step, Access::Write, INSTRUCTIONS))
    }
}

/// What is looked up, with energies as whole numbers.
struct Data {
    layout: Layout,
    /// The sorted grid of each nuclide.
    grids: Vec<u64>,
    /// All energies, sorted.
    energies: Vec<u64>,
    materials: [Vec<u32>; 12],
}

impl Data {
    fn new(layout: Layout, random: &mut Random) -> Data {
        let mut grids: Vec<u64> = (0..layout.rows()).map(|_| random.next()).collect();
        grids.chunks_exact_mut(layout.gridpoints as usize).for_each(<[u64]>::sort_unstable);
        let mut energies = grids.clone();
        energies.sort_unstable();
        Data { layout, grids, energies, materials: materials(layout.nuclides as u32) }
    }

    /// The entry of the index: the last point of a nuclide's grid that is not above the energy of
    /// this row, from the first to the last but one.
    fn entry(&self, row: usize, nuclide: u32) -> u64 {
        let points = self.layout.gridpoints as usize;
        let grid = &self.grids[nuclide as usize * points..][..points];
        let energy = self.energies[row];
        (grid.partition_point(|point| *point <= energy).max(1) - 1).min(points - 2) as u64
    }

    fn look_up(&self, out: &mut Out, energy: u64, material: usize) {
        let row = self.search(out, energy);
        let (nuclides, room) = (self.layout.nuclides, self.layout.room());
        for (place, nuclide) in self.materials[material].iter().enumerate() {
            let place = material as u64 * room + place as u64;
            out.data(self.layout.materials + 4 * place, Access::Read, 1, INSTRUCTIONS);
            out.data(self.layout.materials + 4 * 12 * room + 8 * place, Access::Read, 1, INSTRUCTIONS);
            let entry = row as u64 * nuclides + u64::from(*nuclide);
            out.data(self.layout.index + 4 * entry, Access::Read, 1, INSTRUCTIONS);
            let point = u64::from(*nuclide) * self.layout.gridpoints + self.entry(row, *nuclide);
            out.words(self.layout.grids + POINT * point, Access::Read, 2 * POINT / 8, INSTRUCTIONS);
        }
    }

    /// The row of an energy: the last that is not above it, or the first.
    fn search(&self, out: &mut Out, energy: u64) -> usize {
        let (mut low, mut high) = (0, self.energies.len() - 1);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            out.data(self.layout.energies + 8 * middle as u64, Access::Read, 1, SEARCH);
            if self.energies[middle] > energy {
                high = middle;
            } else {
                low = middle;
            }
        }
        low
    }
}

/// The nuclides of each material: fuel, cladding, cold and hot water, the pressure vessel, five
/// reflectors and plates, and the two ends of the fuel assemblies.
fn materials(nuclides: u32) -> [Vec<u32>; 12] {
    let fuel = FUEL.into_iter().chain(SMALL..nuclides).collect();
    let vessel = [&STEEL[..], &VESSEL].concat();
    let (reflector, ends) = ([&WATER[..], &STEEL].concat(), [&WATER[..], &CLADDING].concat());
    let mut all = [const { Vec::new() }; 12];
    all[..5].clone_from_slice(&[fuel, CLADDING.into(), WATER.into(), WATER.into(), vessel]);
    all[5..10].fill(reflector);
    all[10..].fill(ends);
    all
}

struct Workload {
    layout: Layout,
    /// Look-ups to come.
    left: u64,
    random: Random,
    /// None before the first step.
    data: Option<Data>,
    state: State,
}

enum State {
    Start,
    Fill([Pass; 4]),
    LookUp,
    Done,
}

impl Program for Workload {
    fn step(&mut self, out: &mut Out) -> bool {
        match &mut self.state {
            State::Start => {
                out.begin();
                out.event(Event::Mark("fill".into()));
                for (start, bytes, _) in self.layout.arrays() {
                    out.map_anonymous(start, bytes);
                }
                self.state = State::Fill(self.layout.fill());
            }
            State::Fill(passes) => {
                if !passes.iter_mut().any(|pass| pass.step(out)) {
                    self.data = Some(Data::new(self.layout, &mut self.random));
                    out.event(Event::Mark("look-up".into()));
                    self.state = State::LookUp;
                }
            }
            State::LookUp if self.left == 0 => {
                self.data = None;
                out.event(Event::Exit);
                self.state = State::Done;
            }
            State::LookUp => {
                let data = self.data.as_ref().expect("what was made before the first look-up");
                let count = self.left.min(BLOCK);
                self.left -= count;
                for _ in 0..count {
                    let (energy, volume) = (self.random.next(), self.random.below(1000));
                    let material = VOLUMES.iter().position(|end| volume < *end).expect("all of the volume");
                    data.look_up(out, energy, material);
                }
            }
            State::Done => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(nuclides: u64, gridpoints: u64, seed: u64) -> Data {
        Data::new(Layout::new(nuclides, gridpoints), &mut Random::new(seed))
    }

    #[test]
    fn the_index_is_that_of_the_benchmark() {
        for (gridpoints, seed) in [(2, 1), (3, 2), (50, 3)] {
            let data = data(70, gridpoints, seed);
            let grid = |nuclide: usize| &data.grids[nuclide * gridpoints as usize..][..gridpoints as usize];
            // Built as the benchmark does: in the order of all energies, each nuclide goes on by at
            // most a point.
            let mut at = [0; 70];
            for (row, energy) in data.energies.iter().enumerate() {
                for (nuclide, at) in at.iter_mut().enumerate() {
                    if *energy >= grid(nuclide)[*at + 1] && *at < gridpoints as usize - 2 {
                        *at += 1;
                    }
                    assert_eq!(data.entry(row, nuclide as u32), *at as u64, "row {row}, nuclide {nuclide}");
                }
            }
        }
    }

    #[test]
    fn a_search_finds_the_row() {
        let (data, mut random) = (data(68, 40, 7), Random::new(5));
        for _ in 0..2000 {
            let energy = random.next();
            let found = data.search(&mut Out::default(), energy);
            let expected = data.energies.iter().rposition(|other| *other <= energy).unwrap_or(0);
            // The last row is never one: there is no energy above it to search up to.
            assert_eq!(found, expected.min(data.energies.len() - 2));
        }
    }

    #[test]
    fn materials_have_the_benchmarks_numbers_of_nuclides() {
        for (nuclides, fuel) in [(355, 321), (68, 34)] {
            let materials = materials(nuclides);
            let numbers = materials.each_ref().map(Vec::len);
            assert_eq!(numbers, [fuel, 5, 4, 4, 27, 21, 21, 21, 21, 21, 9, 9]);
            for mut material in materials {
                material.sort_unstable();
                let all = material.len();
                material.dedup();
                assert!(material.len() == all && material.iter().all(|nuclide| *nuclide < nuclides));
            }
        }
    }

    #[test]
    fn a_look_up_reads_fifteen_words_of_each_nuclide() {
        let data = data(68, 100, 1);
        for (material, nuclides) in data.materials.iter().enumerate() {
            let mut out = Out::default();
            data.look_up(&mut out, 1 << 63, material);
            let references: u32 = out.runs().iter().map(|run| run.references).sum();
            let mut search = Out::default();
            data.search(&mut search, 1 << 63);
            let steps: u32 = search.runs().iter().map(|run| run.references).sum();
            assert_eq!(references, steps + 15 * nuclides.len() as u32);
            assert!((12..=13).contains(&steps), "6800 energies");
        }
    }
}
