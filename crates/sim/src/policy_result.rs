//! What a policy says at the end of a run that it has found out.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use superpage_report::Keys;

/// An object of JSON, as the policy made it
/// ([`Background::result`](superpage_vm::Background::result)).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PolicyResult(pub Map<String, Value>);

impl Keys for PolicyResult {}

impl PolicyResult {
    /// Reads what a background returned.
    pub(crate) fn read(result: Result<Option<String>, String>) -> Result<Option<PolicyResult>, String> {
        let read = |text: String| serde_json::from_str(&text).map_err(|error| format!("its result: {error}"));
        result?.map(read).transpose()
    }
}
