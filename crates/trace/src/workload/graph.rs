//! `graph`: a Kronecker graph as Graph500 specifies it (version 2.0, 2017), built and searched
//! breadth first from several roots.
//!
//! The graph has `2^scale` vertices and `edges` times as many undirected edges. A bit of both ends
//! of an edge is drawn at each of `scale` levels: 00 with probability 0.57, 01 and 10 with 0.19
//! each, 11 with the rest; then the vertices are renamed at random. Edges from a vertex to itself
//! are left out, repeated ones are kept.
//!
//! The program holds four arrays of 8-byte words, each at the next multiple of 1 GB: the offsets of
//! all vertices, the targets of all edges in both directions, the parents, and the queue. With 16
//! edges that is 280 bytes a vertex: 70 MB at scale 18, 1.1 GB at 22, 17.5 GB at 26. The part
//! `fill` builds the first two: edges are counted at both ends, counts are summed, and edges are
//! placed at both ends. There is no list of edges: they are drawn twice. With `build=no` both
//! arrays are written in order, as if read from a file. The part `search` is `roots` searches. Each
//! writes all parents in order and then goes from the top down: it takes a vertex from the queue,
//! reads its two offsets and its targets, and the parent of each; if that is new, it writes the
//! parent and the end of the queue. A root is a random vertex, or the next that has an edge.
//!
//! All of this really happens, in half of the space: 8 bytes for the offset of a vertex, 4 for each
//! target and each place in the queue, a bit for a parent. Instructions are assumed: 8 for each
//! level of an edge that is drawn, 3 for other references.

use super::Kind;
use super::parameters::{Parameter, Values};
use super::permutation::Permutation;
use super::program::{Out, Pass, Program, REGION, Running, next_region};
use crate::{Error, Event, Info, Source};
use superpage_pages::{Access, Random};

pub(super) const KIND: Kind = Kind {
    name: "graph",
    help: "build a Kronecker graph and search it breadth first (Graph500)",
    parameters: &[
        Parameter { name: "scale", default: "20", help: "the logarithm of the number of vertices" },
        Parameter { name: "edges", default: "16", help: "edges for each vertex" },
        Parameter { name: "roots", default: "4", help: "the number of searches" },
        Parameter { name: "seed", default: "1", help: "chooses edges and roots" },
        Parameter {
            name: "build",
            default: "yes",
            help: "whether the graph is built from its edges (yes) or written in order (no)",
        },
    ],
    start,
};

/// Instructions around a reference.
const INSTRUCTIONS: u32 = 3;

/// Instructions to draw a level of an edge.
const LEVEL: u32 = 8;

/// Edges and vertices that are processed in a step.
const BLOCK: u64 = 1 << 12;

fn start(values: &Values) -> Result<Box<dyn Source>, Error> {
    let (search, info) = new(values)?;
    Ok(Running::described(values, search, info))
}

fn new(values: &Values) -> Result<(Search, Info), Error> {
    let scale = values.count("scale", 1..=28)? as u32;
    let factor = values.count("edges", 1..=64)?;
    let roots = values.count("roots", 0..=1_000_000)?;
    let seed = values.seed()?;
    let build = values.choice("build", "yes", "no")?;
    let (vertices, edges) = (1_u64 << scale, factor << scale);
    let mut random = Random::new(seed);
    let edge_seed = random.next();
    let kronecker = Kronecker { scale, edges, seed: edge_seed, names: Permutation::new(vertices, random.next()) };
    let layout = Layout::new(vertices, edges);
    let written = layout.pass(layout.offsets, vertices + 2).pages() + layout.pass(layout.targets, 2 * edges).pages();
    let fill = if build { 10 * edges + vertices } else { written };
    let search = 4 * edges + 4 * vertices;
    let memory = 8 * (vertices + 2) + 8 * edges + vertices / 8 + 4 * vertices;
    let info = Info { runs: Some(fill + roots * search), memory, ..Info::default() };
    let (offsets, targets, reached, queue) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let state = State::Start;
    Ok((Search { kronecker, layout, build, random, roots, offsets, targets, reached, queue, state }, info))
}

/// The edges, computed and not stored.
struct Kronecker {
    scale: u32,
    edges: u64,
    seed: u64,
    /// The name of each vertex.
    names: Permutation,
}

/// The shares of the parts of a matrix of edges, upper left, upper right and lower left, added up,
/// of 2^32.
const PARTS: [u32; 3] = [share(57), share(57 + 19), share(57 + 2 * 19)];

/// A percentage of 2^32.
const fn share(percent: u64) -> u32 {
    ((percent << 32) / 100) as u32
}

impl Kronecker {
    /// The ends of the edge with this number.
    #[inline]
    fn edge(&self, number: u64) -> (u64, u64) {
        let draws = u64::from(self.scale.div_ceil(2));
        let mut random = Random::at(self.seed, number * draws);
        let (mut from, mut to, mut bits) = (0, 0, 0);
        for level in 0..self.scale {
            if level % 2 == 0 {
                bits = random.next();
            }
            let draw = bits as u32;
            bits >>= 32;
            let [a, ab, abc] = PARTS.map(|part| u64::from(draw >= part));
            from = from << 1 | ab;
            to = to << 1 | (a ^ ab ^ abc);
        }
        (self.names.at(from), self.names.at(to))
    }

    /// An edge from either end to the other, with the instructions that it takes to draw; nothing
    /// if both are one.
    #[inline]
    fn ends(&self, number: u64) -> impl Iterator<Item = (u64, u64, u32)> + use<> {
        let (from, to) = self.edge(number);
        let drawing = LEVEL * self.scale;
        [(from, to, drawing), (to, from, 0)].into_iter().filter(|(from, to, _)| from != to)
    }
}

/// Where the arrays are.
#[derive(Clone, Copy)]
struct Layout {
    offsets: u64,
    targets: u64,
    parents: u64,
    queue: u64,
    vertices: u64,
    edges: u64,
}

impl Layout {
    fn new(vertices: u64, edges: u64) -> Layout {
        let offsets = REGION;
        let targets = next_region(offsets, 8 * (vertices + 2));
        let parents = next_region(targets, 16 * edges);
        Layout { offsets, targets, parents, queue: next_region(parents, 8 * vertices), vertices, edges }
    }

    /// The arrays and their lengths in words.
    fn arrays(&self) -> [(u64, u64); 4] {
        [
            (self.offsets, self.vertices + 2),
            (self.targets, 2 * self.edges),
            (self.parents, self.vertices),
            (self.queue, self.vertices),
        ]
    }

    /// A pass that writes `words` words of an array.
    fn pass(&self, array: u64, words: u64) -> Pass {
        Pass::new(array, 8 * words, 8, Access::Write, INSTRUCTIONS)
    }
}

/// A load or store of the word with this index of an array.
#[inline]
fn word(out: &mut Out, array: u64, index: u64, access: Access) {
    out.data(array + 8 * index, access, 1, INSTRUCTIONS);
}

struct Search {
    kronecker: Kronecker,
    layout: Layout,
    /// Whether building is in the stream.
    build: bool,
    random: Random,
    /// Searches to come.
    roots: u64,
    /// While edges are counted, the degree of vertex `v` is at `v + 2`. While they are placed, `v +
    /// 1` is where the next of `v` goes, and so in the end where those of `v + 1` begin.
    offsets: Vec<u64>,
    targets: Vec<u32>,
    /// A bit for each vertex that has a parent.
    reached: Vec<u64>,
    queue: Vec<u32>,
    state: State,
}

enum State {
    Start,
    /// The next edge.
    Count(u64),
    /// The next vertex.
    Sum(u64),
    /// The next edge.
    Place(u64),
    /// What remains to be written of offsets and targets, if they are not built.
    Write([Pass; 2]),
    Root,
    /// The parents are written, before a search from this vertex.
    Clear(Pass, u32),
    /// The next place of the queue, and the targets that are left of the vertex taken before.
    Search {
        head: usize,
        edges: std::ops::Range<u64>,
    },
    Done,
}

impl Program for Search {
    fn step(&mut self, out: &mut Out) -> bool {
        match &mut self.state {
            State::Start => {
                self.allocate();
                out.begin();
                out.event(Event::Mark("fill".into()));
                for (array, words) in self.layout.arrays() {
                    out.map_anonymous(array, 8 * words);
                }
                self.state = State::Count(0);
            }
            State::Count(edge) if *edge == self.kronecker.edges => self.state = State::Sum(0),
            State::Count(edge) => {
                let next = self.kronecker.edges.min(*edge + BLOCK);
                let edges = std::mem::replace(edge, next)..next;
                edges.for_each(|edge| self.count(out, edge));
            }
            State::Sum(vertex) if *vertex == self.layout.vertices => self.state = State::Place(0),
            State::Sum(vertex) => {
                let next = self.layout.vertices.min(*vertex + BLOCK);
                let vertices = std::mem::replace(vertex, next)..next;
                vertices.for_each(|vertex| self.sum(out, vertex));
            }
            State::Place(edge) if *edge == self.kronecker.edges => {
                let layout = self.layout;
                let (words, targets) = if self.build { (0, 0) } else { (layout.vertices + 2, self.targets()) };
                self.state = State::Write([layout.pass(layout.offsets, words), layout.pass(layout.targets, targets)]);
            }
            State::Place(edge) => {
                let next = self.kronecker.edges.min(*edge + BLOCK);
                let edges = std::mem::replace(edge, next)..next;
                edges.for_each(|edge| self.place(out, edge));
            }
            State::Write(passes) => {
                if !passes.iter_mut().any(|pass| pass.step(out)) {
                    out.event(Event::Mark("search".into()));
                    self.state = State::Root;
                }
            }
            State::Root if self.roots == 0 => {
                out.event(Event::Exit);
                self.state = State::Done;
            }
            State::Root => {
                self.roots -= 1;
                let root = self.root();
                self.state = State::Clear(self.layout.pass(self.layout.parents, self.layout.vertices), root);
            }
            State::Clear(pass, root) => {
                if !pass.step(out) {
                    let root = *root;
                    self.reached.fill(0);
                    self.queue.clear();
                    self.reach(out, root);
                    self.state = State::Search { head: 0, edges: 0..0 };
                }
            }
            State::Search { head, edges } => {
                let (head, edges) = (*head, edges.clone());
                self.state = self.search(out, head, edges);
            }
            State::Done => return false,
        }
        true
    }
}

impl Search {
    fn allocate(&mut self) {
        let Layout { vertices, edges, .. } = self.layout;
        self.offsets = vec![0; vertices as usize + 2];
        self.targets = vec![0; 2 * edges as usize];
        self.reached = vec![0; vertices.div_ceil(64) as usize];
        self.queue = Vec::with_capacity(vertices as usize);
    }

    fn count(&mut self, out: &mut Out, edge: u64) {
        for (from, _, drawing) in self.kronecker.ends(edge) {
            self.offsets[from as usize + 2] += 1;
            self.built(out, from + 2, drawing);
        }
    }

    fn sum(&mut self, out: &mut Out, vertex: u64) {
        self.offsets[vertex as usize + 2] += self.offsets[vertex as usize + 1];
        self.built(out, vertex + 2, 0);
    }

    fn place(&mut self, out: &mut Out, edge: u64) {
        for (from, to, drawing) in self.kronecker.ends(edge) {
            let place = self.offsets[from as usize + 1];
            self.offsets[from as usize + 1] += 1;
            self.targets[place as usize] = to as u32;
            self.built(out, from + 1, drawing);
            if self.build {
                word(out, self.layout.targets, place, Access::Write);
            }
        }
    }

    /// A word of the offsets is read, after so many instructions, and written, if building is in
    /// the stream.
    #[inline]
    fn built(&self, out: &mut Out, index: u64, before: u32) {
        if self.build {
            out.data(self.layout.offsets + 8 * index, Access::Read, 1, before + INSTRUCTIONS);
            word(out, self.layout.offsets, index, Access::Write);
        }
    }

    /// The number of targets, of all vertices.
    fn targets(&self) -> u64 {
        self.offsets[self.layout.vertices as usize]
    }

    /// The targets of a vertex, as places in the array.
    fn edges(&self, vertex: u64) -> std::ops::Range<u64> {
        self.offsets[vertex as usize]..self.offsets[vertex as usize + 1]
    }

    /// Where the next search begins.
    fn root(&mut self) -> u32 {
        let (vertices, first) = (self.layout.vertices, self.random.below(self.layout.vertices));
        let mut all = (first..vertices).chain(0..first);
        all.find(|vertex| !self.edges(*vertex).is_empty()).unwrap_or(first) as u32
    }

    /// Gives a vertex a parent and a place in the queue.
    fn reach(&mut self, out: &mut Out, vertex: u32) {
        self.reached[vertex as usize / 64] |= 1 << (vertex % 64);
        word(out, self.layout.parents, vertex.into(), Access::Write);
        word(out, self.layout.queue, self.queue.len() as u64, Access::Write);
        self.queue.push(vertex);
    }

    /// Goes on with a search for a step.
    fn search(&mut self, out: &mut Out, mut head: usize, mut edges: std::ops::Range<u64>) -> State {
        for _ in 0..BLOCK {
            if let Some(edge) = edges.next() {
                let target = self.targets[edge as usize];
                word(out, self.layout.targets, edge, Access::Read);
                word(out, self.layout.parents, target.into(), Access::Read);
                if self.reached[target as usize / 64] >> (target % 64) & 1 == 0 {
                    self.reach(out, target);
                }
            } else if let Some(vertex) = self.queue.get(head).copied().map(u64::from) {
                word(out, self.layout.queue, head as u64, Access::Read);
                word(out, self.layout.offsets, vertex, Access::Read);
                word(out, self.layout.offsets, vertex + 1, Access::Read);
                (head, edges) = (head + 1, self.edges(vertex));
            } else {
                return State::Root;
            }
        }
        State::Search { head, edges }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::parameters::Values;
    use std::collections::{BTreeMap, BTreeSet};

    fn search(scale: u32, factor: u64, seed: u64) -> Search {
        let text = format!("scale={scale},edges={factor},seed={seed}");
        new(&Values::parse("graph", KIND.parameters, &text, false).unwrap()).unwrap().0
    }

    /// All edges that are no loops, from both ends.
    fn both_ways(search: &Search) -> Vec<(u64, u64)> {
        let edges = (0..search.kronecker.edges).map(|number| search.kronecker.edge(number));
        edges.filter(|(from, to)| from != to).flat_map(|(from, to)| [(from, to), (to, from)]).collect()
    }

    #[test]
    fn the_arrays_hold_every_edge_and_a_search_reaches_what_a_naive_one_does() {
        for (scale, factor, seed) in [(1, 1, 1), (3, 2, 5), (8, 1, 2), (10, 16, 3), (12, 4, 9)] {
            let mut search = search(scale, factor, seed);
            let mut out = Out::default();
            while !matches!(search.state, State::Root) {
                search.step(&mut out);
            }
            let mut expected = both_ways(&search);
            let vertices = search.layout.vertices;
            let targets = |vertex| search.edges(vertex).map(move |place| (vertex, place));
            let placed =
                (0..vertices).flat_map(targets).map(|(vertex, at)| (vertex, search.targets[at as usize].into()));
            let mut placed: Vec<(u64, u64)> = placed.collect();
            placed.sort_unstable();
            expected.sort_unstable();
            assert_eq!(placed, expected);
            assert_eq!(search.targets(), expected.len() as u64);

            let mut neighbours: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
            expected.iter().for_each(|(from, to)| neighbours.entry(*from).or_default().push(*to));
            for _ in 0..search.roots {
                search.step(&mut out);
                while !matches!(search.state, State::Root) {
                    search.step(&mut out);
                }
                let found: BTreeSet<u64> = search.queue.iter().map(|vertex| u64::from(*vertex)).collect();
                assert_eq!(found.len(), search.queue.len(), "none is reached twice");
                let mut naive = BTreeSet::from([u64::from(search.queue[0])]);
                loop {
                    let next = naive.iter().filter_map(|vertex| neighbours.get(vertex)).flatten().copied();
                    let next: BTreeSet<u64> = next.chain(naive.iter().copied()).collect();
                    if next.len() == naive.len() {
                        break;
                    }
                    naive = next;
                }
                assert_eq!(found, naive);
                assert_eq!(search.reached.iter().map(|word| word.count_ones() as usize).sum::<usize>(), found.len());
            }
        }
    }

    #[test]
    fn the_parts_of_the_matrix_have_their_shares() {
        // Of the last bit of both ends, before the renaming.
        let mut search = search(1, 64, 4);
        search.kronecker.edges = 1_000_000;
        let mut parts = [0_u32; 4];
        let names = [search.kronecker.names.at(0), search.kronecker.names.at(1)];
        for number in 0..search.kronecker.edges {
            let (from, to) = search.kronecker.edge(number);
            let old = |vertex| names.iter().position(|name| *name == vertex).unwrap();
            parts[2 * old(from) + old(to)] += 1;
        }
        for (part, expected) in parts.into_iter().zip([570_000, 190_000, 190_000, 50_000]) {
            assert!(part.abs_diff(expected) < 2500, "{parts:?}");
        }
    }

    #[test]
    fn a_search_reads_every_target_of_what_it_reaches_once() {
        for build in [true, false] {
            let mut search = search(10, 16, 1);
            (search.build, search.roots) = (build, 1);
            let mut out = Out::default();
            while !matches!(search.state, State::Root) {
                search.step(&mut out);
            }
            let before = out.runs().iter().map(|run| u64::from(run.references)).sum::<u64>();
            let (edges, vertices) = (search.targets(), search.layout.vertices);
            let filled = if build { 2 * edges + 2 * vertices + 3 * edges } else { vertices + 2 + edges };
            assert_eq!(before, filled);
            while !matches!(search.state, State::Done) {
                search.step(&mut out);
            }
            let after = out.runs().iter().map(|run| u64::from(run.references)).sum::<u64>() - before;
            let reached = search.queue.len() as u64;
            let read: u64 = search.queue.iter().map(|vertex| search.edges(u64::from(*vertex)).count() as u64).sum();
            assert_eq!(after, vertices + 2 * reached + 3 * reached + 2 * read);
        }
    }
}
