//! Where the words of trees lie: an allocation for each tree, or one buffer for all of them.

use crate::tree::{Shape, Tree, TreeMut};

/// How trees are allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Style {
    /// Each tree by itself, as the thesis found the program.
    Objects,
    /// One buffer, as the thesis left it.
    Buffer,
}

impl std::str::FromStr for Style {
    type Err = String;

    fn from_str(text: &str) -> Result<Style, String> {
        match text {
            "objects" => Ok(Style::Objects),
            "buffer" => Ok(Style::Buffer),
            _ => Err(format!("a style {text} is not known; expected objects or buffer")),
        }
    }
}

/// Trees of one shape, all empty at first.
pub(crate) struct Store {
    shape: Shape,
    words: Words,
}

enum Words {
    Objects(Vec<Box<[u64]>>),
    Buffer(Vec<u64>),
}

impl Store {
    /// So many empty trees.
    pub(crate) fn new(style: Style, shape: Shape, trees: usize) -> Store {
        let words = match style {
            Style::Objects => Words::Objects((0..trees).map(|_| vec![0; shape.words()].into_boxed_slice()).collect()),
            Style::Buffer => Words::Buffer(vec![0; trees * shape.words()]),
        };
        Store { shape, words }
    }

    /// What each tree has.
    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// A tree.
    pub(crate) fn tree(&self, index: usize) -> Tree<'_> {
        let each = self.shape.words();
        Tree::new(
            self.shape,
            match &self.words {
                Words::Objects(objects) => &objects[index],
                Words::Buffer(buffer) => &buffer[index * each..][..each],
            },
        )
    }

    /// A tree to write.
    pub(crate) fn tree_mut(&mut self, index: usize) -> TreeMut<'_> {
        let each = self.shape.words();
        TreeMut::new(
            self.shape,
            match &mut self.words {
                Words::Objects(objects) => &mut objects[index],
                Words::Buffer(buffer) => &mut buffer[index * each..][..each],
            },
        )
    }
}
