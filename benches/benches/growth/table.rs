//! Tables in Markdown, row by row as they are measured.

use std::time::Duration;

/// Prints a heading and the head of a table.
pub(crate) fn begin(title: &str, columns: &[&str]) {
    println!("\n### {title}\n\n| {} |", columns.join(" | "));
    // The first column names the row, the others are numbers.
    println!("|---{}|", "|---:".repeat(columns.len() - 1));
}

/// Prints a row.
pub(crate) fn row(cells: &[String]) {
    println!("| {} |", cells.join(" | "));
}

/// The value below which this share of the values is; they are put in order.
pub(crate) fn quantile(values: &mut [Duration], share: f64) -> Duration {
    values.sort_unstable();
    let last = values.len().saturating_sub(1);
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "it is between 0 and the number of values"
    )]
    let at = (last as f64 * share).round() as usize;
    values.get(at).copied().unwrap_or_default()
}
