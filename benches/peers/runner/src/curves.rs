//! Curves over two logarithmic axes.

use crate::bars::name;
use crate::svg::{Anchor, Svg};

const WIDTH: f64 = 820.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 690.0;
const TOP: f64 = 60.0;
const BOTTOM: f64 = 370.0;
/// The least distance between two names.
const NAME: f64 = 15.0;

/// A peer's points, from left to right.
#[derive(Debug)]
pub(crate) struct Curve {
    pub(crate) peer: &'static str,
    pub(crate) points: Vec<(f64, f64)>,
}

/// From one power of ten to another.
struct Axis {
    from: f64,
    to: f64,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64> + Clone) -> Self {
        let least = values.clone().fold(f64::MAX, f64::min).log10();
        let most = values.fold(f64::MIN_POSITIVE, f64::max).log10();
        let from = (least + 0.01).floor();
        Self {
            from,
            to: (most - 0.01).ceil().max(from + 1.0),
        }
    }

    /// Where a value is, from 0 to 1.
    fn place(&self, value: f64) -> f64 {
        (value.log10() - self.from) / (self.to - self.from)
    }

    /// Its powers of ten.
    fn ticks(&self) -> impl Iterator<Item = f64> {
        let (from, to) = (self.from, self.to);
        std::iter::successors(Some(from), |power| Some(power + 1.0))
            .take_while(move |power| *power <= to)
            .map(|power| 10_f64.powf(power))
    }
}

/// Draws the curves; nothing if there are none.
pub(crate) fn draw(title: &str, axes: (&str, &str), curves: &[Curve]) -> Option<String> {
    let points = curves.iter().flat_map(|curve| curve.points.iter().copied());
    points.clone().next()?;
    let x = Axis::over(points.clone().map(|(x, _)| x));
    let y = Axis::over(points.map(|(_, y)| y));
    let at = |(h, v): (f64, f64)| {
        let (h, v) = (x.place(h), y.place(v));
        (LEFT + h * (RIGHT - LEFT), BOTTOM - v * (BOTTOM - TOP))
    };
    let mut svg = Svg::new(WIDTH, title);
    svg.text((16.0, 24.0), Anchor::Start, "head", title);
    svg.text((16.0, 44.0), Anchor::Start, "dim", axes.1);
    let middle = f64::midpoint(LEFT, RIGHT);
    svg.text((middle, BOTTOM + 40.0), Anchor::Middle, "dim", axes.0);
    for tick in x.ticks() {
        let (h, _) = at((tick, 1.0));
        svg.line((h, TOP), (h, BOTTOM), "grid");
        svg.text((h, BOTTOM + 18.0), Anchor::Middle, "dim", &number(tick));
    }
    for tick in y.ticks() {
        let (_, v) = at((1.0, tick));
        svg.line((LEFT, v), (RIGHT, v), "grid");
        svg.text((LEFT - 8.0, v + 4.0), Anchor::End, "dim", &number(tick));
    }
    let mut names = Vec::new();
    for (place, curve) in curves.iter().enumerate() {
        let class = match curve.peer {
            "ours" => "ours".to_owned(),
            "raw" => "limit".to_owned(),
            _ => format!("c{}", place % 7),
        };
        let points: Vec<_> = curve.points.iter().map(|point| at(*point)).collect();
        svg.curve(&points, &class);
        for point in &points {
            svg.dot(*point, &class);
        }
        if let Some(last) = points.last() {
            names.push((last.1, *last, class, curve.peer));
        }
    }
    write_names(&mut svg, names);
    Some(svg.finish(HEIGHT))
}

/// Writes each name at the height of its curve's end, or as near as the others let it.
fn write_names(svg: &mut Svg, mut names: Vec<(f64, (f64, f64), String, &'static str)>) {
    names.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut free = TOP - NAME;
    for (height, end, class, peer) in names {
        let height = height.max(free + NAME);
        free = height;
        svg.line((end.0 + 4.0, end.1), (RIGHT + 14.0, height), &class);
        let key = format!("{class} key");
        svg.text(
            (RIGHT + 18.0, height + 4.0),
            Anchor::Start,
            &key,
            name(peer),
        );
    }
}

/// A power of ten.
fn number(value: f64) -> String {
    if value >= 999_999.0 {
        format!("{:.0} M", value / 1e6)
    } else if value >= 999.0 {
        format!("{:.0} k", value / 1e3)
    } else {
        // No more digits than it has.
        let text = format!("{value:.6}");
        let text = text.trim_end_matches('0');
        text.trim_end_matches('.').to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_goes_from_power_to_power() {
        let axis = Axis::over([3.0, 250.0].into_iter());
        let ticks: Vec<_> = axis.ticks().map(number).collect();
        assert_eq!(ticks, ["1", "10", "100", "1 k"]);
        assert!((axis.place(1000.0) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn small_numbers_are_written_out() {
        assert_eq!(number(0.01), "0.01");
        assert_eq!(number(1e6), "1 M");
    }
}
