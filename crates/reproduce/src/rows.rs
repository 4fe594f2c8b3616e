//! The findings of an experiment as tables: those that are judged one by one, those that are only
//! shown in little room.

use crate::write::{measured, number};
use crate::{Finding, Verdict};
use superpage_report::{Column, Table};

/// Findings one by one, each with the numbers of its reason, and the reasons in their order, each
/// once.
pub(crate) fn list<'a>(findings: impl IntoIterator<Item = &'a Finding>) -> (Table, Vec<&'a str>) {
    let mut reasons: Vec<&str> = Vec::new();
    let mut table = Table::new([
        Column::prose("item"),
        Column::prose("quantity"),
        Column::number("paper"),
        Column::number("here"),
        Column::prose("tolerance").only_wide(),
        Column::name("verdict").classed(),
    ]);
    for finding in findings {
        let note = finding.reason.as_deref().map(|reason| {
            let index = reasons.iter().position(|known| *known == reason).unwrap_or_else(|| {
                reasons.push(reason);
                reasons.len() - 1
            });
            format!(" [{}]", index + 1)
        });
        table.row([
            finding.item.clone(),
            finding.quantity.clone(),
            finding.paper_value.map_or("-".into(), number),
            measured(finding, "-"),
            finding.tolerance.clone().unwrap_or_default(),
            format!("{}{}", finding.verdict, note.unwrap_or_default()),
        ]);
    }
    (table, reasons)
}

/// The findings that are judged, and those that are not.
pub(crate) fn parted(findings: &[Finding]) -> (Vec<&Finding>, Vec<&Finding>) {
    findings.iter().partition(|finding| finding.verdict != Verdict::Shown)
}

/// Values in little room: a row for each item and a column for each quantity, or turned if there
/// are more quantities; item, quantity and value where most cells would be empty. The paper's value
/// is in parentheses. Findings without a value are left out; `None` if there is no other.
pub(crate) fn shown(findings: &[&Finding]) -> Option<Table> {
    let found: Vec<&Finding> = findings.iter().copied().filter(|finding| finding.measured.is_some()).collect();
    if found.is_empty() {
        return None;
    }
    let different = |of: fn(&Finding) -> &str| {
        let mut names: Vec<&str> = Vec::new();
        found.iter().for_each(|finding| {
            if !names.contains(&of(finding)) {
                names.push(of(finding))
            }
        });
        names
    };
    let (items, quantities) = (different(|finding| &finding.item), different(|finding| &finding.quantity));
    let value = |finding: &Finding| match finding.paper_value {
        Some(paper) => format!("{} ({})", measured(finding, "-"), number(paper)),
        None => measured(finding, "-"),
    };
    if 2 * found.len() < items.len() * quantities.len() || quantities.len() == 1 {
        let mut table = Table::new([Column::prose("item"), Column::prose("quantity"), Column::number("here")]);
        found.iter().for_each(|finding| table.row([finding.item.clone(), finding.quantity.clone(), value(finding)]));
        return Some(table);
    }
    let turned = quantities.len() > items.len();
    let ((head, down), across) = if turned { (("quantity", quantities), items) } else { (("item", items), quantities) };
    let mut table = Table::new([Column::prose(head)].into_iter().chain(across.iter().copied().map(Column::number)));
    for name in down {
        let cell = |other: &&str| {
            let (item, quantity) = if turned { (*other, name) } else { (name, *other) };
            found
                .iter()
                .find(|finding| finding.item == item && finding.quantity == quantity)
                .map_or("-".into(), |f| value(f))
        };
        table.row([name.to_string()].into_iter().chain(across.iter().map(cell)));
    }
    Some(table)
}

/// Why findings are only shown, each reason once, and of what: the number of rows, or the item of
/// one, with its quantity if the item has other rows.
pub(crate) fn reasons<'a>(shown: &[&'a Finding]) -> Vec<(&'a str, String)> {
    let mut found: Vec<(&str, &Finding, usize)> = Vec::new();
    for finding in shown {
        let Some(reason) = finding.reason.as_deref() else { continue };
        match found.iter_mut().find(|(known, ..)| *known == reason) {
            Some((.., count)) => *count += 1,
            None => found.push((reason, finding, 1)),
        }
    }
    let of = |Finding { item, quantity, .. }: &Finding| {
        let others = shown.iter().filter(|other| other.item == *item).count() > 1;
        if others { format!("{item}, {quantity}") } else { item.clone() }
    };
    let of = |first: &Finding, count| if count == 1 { of(first) } else { format!("{count} rows") };
    found.into_iter().map(|(reason, first, count)| (reason, of(first, count))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_of_one_row_names_it() {
        let finding = |item: &str, quantity: &str, reason: &str| Finding {
            paper: "p".into(),
            experiment: "e".into(),
            item: item.into(),
            quantity: quantity.into(),
            paper_value: None,
            measured: None,
            tolerance: None,
            verdict: Verdict::Shown,
            reason: Some(reason.into()),
            settings: None,
            settings_verdict: None,
            estimate: None,
        };
        let rows = [("A", "x", "no"), ("B", "x", "none"), ("B", "y", "nil"), ("C", "x", "un"), ("D", "x", "un")];
        let findings = rows.map(|(item, quantity, reason)| finding(item, quantity, reason));
        let found = reasons(&findings.iter().collect::<Vec<_>>());
        let found: Vec<String> = found.into_iter().map(|(reason, of)| format!("{of}: {reason}")).collect();
        assert_eq!(found, ["A: no", "B, x: none", "B, y: nil", "2 rows: un"]);
    }
}
