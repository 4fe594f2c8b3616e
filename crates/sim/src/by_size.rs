//! What is known by size, as an object whose keys are page sizes.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use superpage_pages::PageSize;

pub(crate) fn serialize<T: Serialize, S: Serializer>(pairs: &[(PageSize, T)], out: S) -> Result<S::Ok, S::Error> {
    out.collect_map(pairs.iter().map(|(size, value)| (size.to_string(), value)))
}

pub(crate) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    text: D,
) -> Result<Vec<(PageSize, T)>, D::Error> {
    Ok(BTreeMap::deserialize(text)?.into_iter().collect())
}
