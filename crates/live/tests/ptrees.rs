//! The data-mining program of `examples/ptrees` against sums over plain tables.
#![cfg(target_os = "linux")]

#[path = "../examples/ptrees/predict.rs"]
mod predict;
#[path = "../examples/ptrees/ratings.rs"]
#[allow(dead_code, reason = "the example has more use for it")]
mod ratings;
#[path = "../examples/ptrees/store.rs"]
#[allow(dead_code, reason = "the example has more use for it")]
mod store;
#[path = "../examples/ptrees/tree.rs"]
mod tree;

use predict::{Common, Target};
use ratings::{MOVIES, Rating, Size, Source, Trees};
use store::{Store, Style};
use tree::{Shape, Tree, TreeMut, count, visit};

const SIZE: Size = Size { users: 700, movies: 300, each: 40 };

/// All ratings of a seed, as trees and as a table with 0 for none.
fn both(style: Style) -> (Trees, Vec<Vec<u8>>) {
    let (mut source, mut trees) = (Source::new(SIZE, 7), Trees::new(style, SIZE));
    let (mut table, mut rated) = (vec![vec![0; SIZE.movies]; SIZE.users], Vec::new());
    for (user, row) in table.iter_mut().enumerate() {
        source.user(user, &mut rated);
        for rating in &rated {
            trees.add(*rating);
            row[rating.movie as usize] = rating.stars;
        }
    }
    (trees, table)
}

fn stars(bits: [Tree; 3], thing: usize) -> u8 {
    (0..3).map(|bit| u8::from(bits[bit].get(thing)) << bit).sum()
}

/// The sums of two movies over the table.
fn common(table: &[Vec<u8>], left: usize, right: usize) -> Common {
    let mut sums = Common::default();
    for row in table.iter().filter(|row| row[left] > 0 && row[right] > 0) {
        let (a, b) = (u64::from(row[left]), u64::from(row[right]));
        sums.users += 1;
        sums.left += a;
        sums.right += b;
        sums.left_squares += a * a;
        sums.right_squares += b * b;
        sums.products += a * b;
    }
    sums
}

#[test]
fn trees_hold_what_the_table_holds() {
    for style in [Style::Objects, Style::Buffer] {
        let (trees, table) = both(style);
        for (user, row) in table.iter().enumerate() {
            for (movie, expected) in row.iter().enumerate() {
                assert_eq!(stars(trees.user(user), movie), *expected);
                assert_eq!(stars(trees.movie(movie), user), *expected);
            }
            trees.user(user).iter().for_each(|tree| tree.validate().unwrap());
        }
        (0..SIZE.movies).for_each(|movie| trees.movie(movie).iter().for_each(|tree| tree.validate().unwrap()));
    }
}

#[test]
fn sums_and_similarities_are_those_of_the_table() {
    let (trees, table) = both(Style::Buffer);
    let (shape, _) = trees.shapes();
    let mut scratch = Store::new(Style::Objects, shape, 1);
    for movie in [0, 17, 299] {
        let target = Target::new(shape, trees.movie(movie));
        let expected: Vec<Common> = (0..SIZE.movies).map(|other| common(&table, movie, other)).collect();
        for (other, expected) in expected.iter().enumerate() {
            assert_eq!(target.common(trees.movie(movie), trees.movie(other), &mut scratch), *expected);
        }
        let found = predict::neighbours(&trees, movie, 10);
        let least = found.near.iter().map(|(_, similarity)| *similarity).fold(f64::INFINITY, f64::min);
        let better = |other: &usize| *other != movie && expected[*other].similarity() > least;
        assert!((0..SIZE.movies).filter(better).all(|other| found.near.iter().any(|(near, _)| *near == other)));
        assert_eq!(found.near.len(), 10);
    }
}

#[test]
fn predictions_are_those_of_the_table_in_both_styles() {
    let (objects, table) = both(Style::Objects);
    let (buffer, _) = both(Style::Buffer);
    let mean = |movie: usize| {
        let given: Vec<f64> = table.iter().map(|row| f64::from(row[movie])).filter(|stars| *stars > 0.0).collect();
        if given.is_empty() { 3.0 } else { given.iter().sum::<f64>() / given.len() as f64 }
    };
    let expected: Vec<f64> = (0..SIZE.movies).map(mean).collect();
    let means = predict::means(&objects);
    assert_eq!(means, expected);
    assert_eq!(predict::means(&buffer), expected);
    for movie in [3, 120] {
        let near = predict::neighbours(&objects, movie, 25);
        assert_eq!(predict::neighbours(&buffer, movie, 25).near, near.near);
        for (user, row) in table.iter().enumerate() {
            let rated = near.near.iter().filter(|(other, _)| row[*other] > 0);
            let moves: Vec<(f64, f64)> = rated
                .map(|(other, similarity)| (similarity * (f64::from(row[*other]) - means[*other]), *similarity))
                .collect();
            let weight: f64 = moves.iter().map(|(_, weight)| weight).sum();
            let moved: f64 = moves.iter().map(|(moved, _)| moved).sum();
            let expected = means[movie] + if weight > 0.0 { moved / weight } else { 0.0 };
            let says = predict::predict(&objects, &means, &near, user);
            assert!((says - expected).abs() < 1e-9, "{says} is not {expected}");
            assert_eq!(predict::predict(&buffer, &means, &near, user), says);
        }
    }
}

/// Withheld ratings are predicted better than by the means of the movies: the program does what it
/// is for.
#[test]
fn neighbours_know_more_than_means() {
    let size = Size { users: 3000, movies: 400, each: 60 };
    let (mut source, mut trees) = (Source::new(size, 3), Trees::new(Style::Objects, size));
    let target = source.popular()[5] as usize;
    let (mut withheld, mut rated): (Vec<Rating>, _) = (Vec::new(), Vec::new());
    for user in 0..size.users {
        source.user(user, &mut rated);
        for rating in &rated {
            let keep = rating.movie as usize != target || user % 2 == 0;
            if keep { trees.add(*rating) } else { withheld.push(*rating) }
        }
    }
    let means = predict::means(&trees);
    let near = predict::neighbours(&trees, target, 50);
    let says: Vec<f64> =
        withheld.iter().map(|rating| predict::predict(&trees, &means, &near, rating.user as usize)).collect();
    let (with, without) =
        (predict::error(&withheld, &says), predict::error(&withheld, &vec![means[target]; says.len()]));
    assert!(
        withheld.len() > 200 && with < 0.9 * without,
        "{} ratings, off by {with}, without by {without}",
        withheld.len()
    );
}

/// And, or, not and count over trees with empty, full and mixed leaves, of sizes that do not fill
/// the hierarchy.
#[test]
fn operations_are_those_of_single_bits() {
    let mut rng = fastrand::Rng::with_seed(5);
    for things in [64, 640, 64 * 65, 64 * 130] {
        let shape = Shape::over(things);
        assert_eq!(shape.things(), things);
        let mut words = vec![vec![0; shape.words()]; 3];
        let mut bits = vec![vec![false; things]; 2];
        for (index, bits) in bits.iter_mut().enumerate() {
            for leaf in bits.chunks_mut(64) {
                let kind = rng.u32(0..3);
                leaf.iter_mut().for_each(|bit| *bit = kind == 1 || kind == 2 && rng.bool());
            }
            let mut tree = TreeMut::new(shape, &mut words[index]);
            bits.iter().enumerate().filter(|(_, bit)| **bit).for_each(|(thing, _)| tree.set(thing));
        }
        // What was in the result before must not show.
        (0..things).for_each(|thing| TreeMut::new(shape, &mut words[2]).set(thing));
        let [a, b, result] = &mut words[..] else { unreachable!() };
        let (a, b) = (Tree::new(shape, a), Tree::new(shape, b));
        let check = |result: &[u64], expected: &dyn Fn(usize) -> bool| {
            let tree = Tree::new(shape, result);
            tree.validate().unwrap();
            (0..things).for_each(|thing| assert_eq!(tree.get(thing), expected(thing)));
            assert_eq!(tree.count(), (0..things).filter(|thing| expected(*thing)).count() as u64);
        };
        TreeMut::new(shape, result).and(a, b);
        check(result, &|thing| bits[0][thing] && bits[1][thing]);
        assert_eq!(count([a, b]), Tree::new(shape, result).count());
        let mut seen = 0;
        visit([a, b], |_, leaf| seen += u64::from(leaf.count_ones()));
        assert_eq!(seen, count([a, b]));
        TreeMut::new(shape, result).or(a, b);
        check(result, &|thing| bits[0][thing] || bits[1][thing]);
        TreeMut::new(shape, result).not(a);
        check(result, &|thing| !bits[0][thing]);
    }
}

#[test]
fn a_tree_over_the_movies_has_the_size_of_the_paper() {
    assert_eq!(8 * Shape::over(MOVIES).words(), 2224);
}
