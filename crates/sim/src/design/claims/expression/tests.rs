use super::*;

fn metric(run: &str, name: &str, when: When) -> Result<Value, String> {
    match (run, name) {
        ("t", "covered") if when == When::OverTime => {
            let samples = [("0.25", 0.5), ("0.5", 0.875), ("0.75", 0.25), ("1", 0.75)];
            Ok(Value::Series(samples.map(|(point, value)| (point.to_owned(), value)).into()))
        }
        _ if when == When::OverTime => Err(format!("no {run}.{name} over time")),
        ("a", "seconds") => Ok(Value::Number(2.0)),
        ("s", "seconds") => {
            Ok(Value::Series([("0", 1.0), ("50", 4.0), ("100", 2.0)].map(|(p, v)| (p.to_owned(), v)).into()))
        }
        ("w", "seconds") => {
            Ok(Value::Series([("gups", 1.0), ("bfs", 4.0)].map(|(p, v)| (p.to_owned(), v)).into()))
        }
        ("m", "mix.program.*.time") => {
            let numbers = [("one", "gups", 1.0), ("one", "bfs", 3.0), ("two", "gups", 5.0)];
            Ok(Value::Series(numbers.map(|(point, name, value)| (starred(point, name), value)).into()))
        }
        _ => Err(format!("no {run}.{name}")),
    }
}

fn number(text: &str) -> f64 {
    match parse(text, &|_| None).unwrap().value(&metric).unwrap() {
        Value::Number(number) => number,
        series => panic!("{series}"),
    }
}

#[test]
fn arithmetic_and_functions_by_hand() {
    assert_eq!(number("1 + 2 * 3 - 4 / 2"), 5.0);
    assert_eq!(number("(1 + 2) * -a.seconds"), -6.0);
    assert_eq!(number("1.5e3 * a.seconds"), 3000.0);
    assert_eq!(number("argmax(s.seconds)"), 50.0);
    assert_eq!(number("argmin(s.seconds)"), 0.0);
    assert_eq!(number("at(s.seconds, 100) / max(s.seconds)"), 0.5);
    assert!((number("geomean(2 * s.seconds)") - 4.0).abs() < 1e-12);
    assert_eq!(number("mean(s.seconds - s.seconds)"), 0.0);
    assert_eq!(number("min(s.seconds)"), 1.0);
    assert_eq!(number("at(w.seconds, bfs) / at(w.seconds, gups)"), 4.0);
}

#[test]
fn a_star_stands_for_any_name_and_functions_gather_what_a_point_has() {
    let series = |text: &str| match parse(text, &|_| None).unwrap().value(&metric).unwrap() {
        Value::Series(series) => series
            .into_iter()
            .map(|(point, value)| format!("{} {value}", point.replace(STAR, "/")))
            .collect::<Vec<_>>(),
        Value::Number(number) => vec![number.to_string()],
    };
    assert_eq!(series("max_each(m.mix.program.*.time)"), ["one 3", "two 5"]);
    assert_eq!(
        series("mean_each(m.mix.program.*.time*2)"),
        ["one 4", "two 10"],
        "the second star multiplies"
    );
    assert_eq!(
        series("m.mix.program.*.time / m.mix.program.*.time"),
        ["one/gups 1", "one/bfs 1", "two/gups 1"]
    );
    // Two of the numbers 1, 3 and 5 are above 2, and one of the means 2 and 5.
    assert!((number("above(m.mix.program.*.time, 2)") - 2.0 / 3.0).abs() < 1e-12);
    assert_eq!(number("above(mean_each(m.mix.program.*.time), a.seconds)"), 0.5);
    assert_eq!(number("above(s.seconds, 1)"), 2.0 / 3.0, "one is not above one");
}

#[test]
fn values_over_time_by_hand() {
    assert_eq!(number("last(over_time(t.covered))"), 0.75);
    assert_eq!(number("last(until(over_time(t.covered), 0.6))"), 0.875, "the value when 60 % are over");
    assert_eq!(number("max(since(over_time(t.covered), 0.75))"), 0.75, "the point itself belongs to it");
    assert_eq!(number("min(until(over_time(t.covered), 0.5))"), 0.5);
    assert_eq!(number("mean(since(until(over_time(t.covered), 0.75), 0.5))"), 0.5625);
    assert_eq!(number("first_above(over_time(t.covered), 0.5)"), 0.5, "a half is not above a half");
    assert_eq!(number("first_above(since(over_time(t.covered), 0.6), 0.5)"), 1.0);
    assert_eq!(number("first_above(over_time(t.covered), 0.9)"), f64::INFINITY);
    assert_eq!(number("first_above(0 - over_time(t.covered), -0.3)"), 0.75, "the first below 0.3");
    assert_eq!(number("argmin(over_time(t.covered))"), 0.75);
    assert_eq!(number("above(over_time(t.covered), 0.6)"), 0.5, "for half of the time");
    // Points that a claim names are such points too.
    assert_eq!(number("first_above(s.seconds, 1.5)"), 50.0);
    let names = |text: &str| (text == "covered").then(|| parse("t.covered", &|_| None).unwrap());
    let defined = parse("over_time(covered)", &names).unwrap();
    assert_eq!(defined.metrics(), [("t", "covered", When::OverTime)]);
}

#[test]
fn orders_hold_at_every_point() {
    let order = |text: &str| parse(text, &|_| None).unwrap().order(&metric).unwrap().unwrap().0;
    assert!(order("1 < a.seconds < 3"));
    assert!(!order("1 < a.seconds < 2"));
    assert!(order("5 > s.seconds > 0"));
    assert!(!order("s.seconds > 1"));
}

#[test]
fn mistakes_say_what_was_expected() {
    for (text, expected) in [
        ("1 +", "the expression ends where a number or a name was expected"),
        ("(1", "a bracket is not closed"),
        ("speed", "\"speed\" is neither defined nor a run's metric such as read.seconds"),
        ("argmx(s.seconds)", "unknown function \"argmx\"; did you mean \"argmax\"?"),
        ("1 < 2 > 1", "an order goes one way: use only < or only >"),
        ("1 2", "found 2 after the end of the expression"),
        ("a.seconds & 2", "\"&\" has no meaning here"),
        ("at(s.seconds)", "at takes 2 arguments, not 1"),
        ("above(s.seconds)", "above takes 2 arguments, not 1"),
        ("since(s.seconds)", "since takes 2 arguments, not 1"),
        (
            "over_time(2 * t.covered)",
            "over_time takes what a run samples, such as read.contiguity.coverage_128",
        ),
        ("over_tim(t.covered)", "unknown function \"over_tim\"; did you mean \"over_time\"?"),
        ("1.2.3", "\"1.2.3\" is not a number"),
        ("2e + 1", "found \"e\" after the end of the expression"),
    ] {
        assert_eq!(parse(text, &|_| None).unwrap_err(), expected);
    }
    let value = |text: &str| parse(text, &|_| None).unwrap().value(&metric).unwrap_err();
    assert_eq!(value("s.seconds + w.seconds"), "the series have different points");
    assert_eq!(value("argmax(w.seconds)"), "the point \"bfs\" is no number");
    assert_eq!(value("at(w.seconds, bt)"), "the series has no such point; it has gups, bfs");
    assert_eq!(value("at(s.seconds, 7)"), "the series has no such point; it has 0, 50, 100");
    assert_eq!(value("max(a.seconds)"), "a function of a series was given one number");
    assert_eq!(
        value("max_each(s.seconds)"),
        "the series has one number for each point, as no * is in its metric"
    );
    assert_eq!(
        value("since(over_time(t.covered), 2)"),
        "the series has no point there; it goes from 0.25 to 1"
    );
    assert_eq!(value("until(w.seconds, 1)"), "the point \"gups\" is no number");
    assert_eq!(value("first_above(w.seconds, 1)"), "the point \"bfs\" is no number");
    assert_eq!(value("since(s.seconds, s.seconds)"), "since() takes one point, not a series");
    assert_eq!(value("last(t.covered)"), "no t.covered");
    assert_eq!(value("above(s.seconds, s.seconds)"), "above() takes one limit, not a series");
    assert!(parse(&"(".repeat(5000), &|_| None).is_err());
}

#[test]
fn numbers_read_with_four_digits() {
    for (number, text) in
        [(0.0, "0"), (217.64, "217.6"), (0.798, "0.798"), (80.0, "80"), (12345.6, "12346"), (1e9, "1.000e9")]
    {
        assert_eq!(short(number), text);
    }
}
