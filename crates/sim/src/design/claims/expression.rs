//! The small language in which a claim says what it compares: `argmax(read.throughput)`,
//! `1 < speedup_vivt < speedup_perfect`.
//!
//! | form | meaning |
//! |---|---|
//! | `run.metric` | a metric of a run; a series over the run's points where it has some |
//! | `+ - * /`, brackets, numbers | arithmetic, point by point on series |
//! | `max min mean geomean (series)` | one number |
//! | `argmax argmin (series)` | the point, a number, at which the series is largest or smallest |
//! | `run.mix.program.*.time` | the metrics that have any one name in place of the star, at each point |
//! | `max_each mean_each (series)` | of a series with a star: one number for each point, over what the star stands for |
//! | `above(series, number)` | the share of the series' numbers that are larger |
//! | `at(series, point)` | the value at one point, a number or a name |
//! | `over_time(run.contiguity.coverage_128)` | what was sampled over a run: a series whose points are shares of its time |
//! | `since(series, point) until(series, point)` | the numbers from a point on, or up to it; both have the point itself |
//! | `last(series)` | the number at the last point |
//! | `first_above(series, limit)` | the first point at which the number is larger; infinite where none is |
//! | `a < b < c`, `a > b` | the claim that the order holds, at every point where series are compared |
//!
//! Metrics: `seconds`, `cycles`, `accesses`, `instructions`, `throughput` (accesses per second), or the full name of a
//! statistic, such as `walk.memory_refs`; of a histogram that is how many values it has, with `.mean` or `.max` behind it
//! those of the values. What is sampled over time is in [`super::over_time`].

mod series;

use series::{above, at, each, first_above, part, pointwise};
use std::fmt;

/// Reads a metric of a run: its names and when. Errors: what is missing.
pub type Read<'a> = dyn Fn(&str, &str, When) -> Result<Value, String> + 'a;

/// A parsed expression.
#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    /// A constant.
    Number(f64),
    /// A metric of a run.
    Metric {
        /// The run's name in the claim file.
        run: String,
        /// What to read of it.
        metric: String,
        /// Whether that is one number or a series.
        when: When,
    },
    /// The name of a point, which only `at` takes.
    Point(String),
    /// `-x`.
    Negated(Box<Expression>),
    /// Arithmetic.
    Binary(Box<Expression>, Operator, Box<Expression>),
    /// A function.
    Call(Function, Vec<Expression>),
    /// A chain of at least two terms, each smaller (or each larger) than the next.
    Order(Vec<Expression>, Direction),
}

/// When a metric of a run is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Once, at the end.
    AtEnd,
    /// At every sample.
    OverTime,
}

/// Arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
}

/// Direction of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// `<`
    Rising,
    /// `>`
    Falling,
}

/// Functions that make one number of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the module's table says what each does")]
pub enum Reduction {
    Max,
    Min,
    Mean,
    Geomean,
    Argmax,
    Argmin,
    Last,
}

/// Functions of series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the module's table says what each does")]
pub enum Function {
    /// One number of all.
    OfAll(Reduction),
    /// One number for each point, of what a star stands for.
    OfEach(Reduction),
    Above,
    At,
    FirstAbove,
    Since,
    Until,
}

impl Function {
    fn arguments(self) -> usize {
        match self {
            Function::OfAll(_) | Function::OfEach(_) => 1,
            Function::Above | Function::At | Function::FirstAbove | Function::Since | Function::Until => 2,
        }
    }
}

/// Gives a metric its samples over time: no function of a series, as it decides what is read.
const OVER_TIME: &str = "over_time";

const FUNCTIONS: [(&str, Function); 14] = [
    ("max", Function::OfAll(Reduction::Max)),
    ("min", Function::OfAll(Reduction::Min)),
    ("mean", Function::OfAll(Reduction::Mean)),
    ("geomean", Function::OfAll(Reduction::Geomean)),
    ("argmax", Function::OfAll(Reduction::Argmax)),
    ("argmin", Function::OfAll(Reduction::Argmin)),
    ("max_each", Function::OfEach(Reduction::Max)),
    ("mean_each", Function::OfEach(Reduction::Mean)),
    ("above", Function::Above),
    ("at", Function::At),
    ("last", Function::OfAll(Reduction::Last)),
    ("first_above", Function::FirstAbove),
    ("since", Function::Since),
    ("until", Function::Until),
];

/// What the label of a number has between the point and what a star stands for: no point has it.
const STAR: char = '\u{1f}';

/// The label of a number at `point` that has `name` in place of a star.
pub(super) fn starred(point: &str, name: &str) -> String {
    format!("{point}{STAR}{name}")
}

/// A number, or one per point.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// One number.
    Number(f64),
    /// `(point, value)` in the order of the points; with a star, several for a point, each [`starred`].
    Series(Vec<(String, f64)>),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(number) => f.write_str(&short(*number)),
            Value::Series(series) => {
                let items: Vec<_> = series
                    .iter()
                    .map(|(point, value)| format!("{}: {}", point.replace(STAR, "/"), short(*value)))
                    .collect();
                f.write_str(&items.join(", "))
            }
        }
    }
}

/// A number with about four significant digits.
pub(crate) fn short(number: f64) -> String {
    let magnitude = number.abs();
    if magnitude == 0.0 || (1000.0..1e7).contains(&magnitude) {
        format!("{number:.0}")
    } else if !(1e-3..1e7).contains(&magnitude) {
        format!("{number:.3e}")
    } else {
        let decimals = (3 - magnitude.log10().floor() as i32).clamp(0, 6) as usize;
        let text = format!("{number:.decimals$}");
        match text.contains('.') {
            true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
            false => text,
        }
    }
}

/// Reads an expression. `names` are definitions that stand for expressions. Errors: what was found and expected.
pub fn parse(text: &str, names: &dyn Fn(&str) -> Option<Expression>) -> Result<Expression, String> {
    let tokens = tokens(text)?;
    let mut parser = Parser { tokens: &tokens, at: 0, depth: 0, names };
    let first = parser.sum()?;
    let mut terms = vec![first];
    let mut direction = None;
    while let Some(Token::Sign(sign @ ('<' | '>'))) = parser.peek() {
        let this = if *sign == '<' { Direction::Rising } else { Direction::Falling };
        if direction.is_some_and(|known| known != this) {
            return Err("an order goes one way: use only < or only >".into());
        }
        direction = Some(this);
        parser.at += 1;
        terms.push(parser.sum()?);
    }
    if let Some(token) = parser.peek() {
        return Err(format!("found {token} after the end of the expression"));
    }
    Ok(match direction {
        Some(direction) => Expression::Order(terms, direction),
        None => terms.remove(0),
    })
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Number(f64),
    Name(String),
    Sign(char),
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Number(number) => write!(f, "{number}"),
            Token::Name(name) => write!(f, "\"{name}\""),
            Token::Sign(sign) => write!(f, "\"{sign}\""),
        }
    }
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = |accept: fn(char) -> bool| rest.find(|c| !accept(c)).unwrap_or(rest.len());
        let taken = if first.is_ascii_digit() {
            let mantissa = length(|c| c.is_ascii_digit() || c == '.');
            let exponent = rest[mantissa..].strip_prefix('e').unwrap_or_default();
            let exponent = exponent.bytes().take_while(u8::is_ascii_digit).count();
            let taken = mantissa + if exponent > 0 { 1 + exponent } else { 0 };
            let number = &rest[..taken];
            tokens.push(Token::Number(number.parse().map_err(|_| format!("\"{number}\" is not a number"))?));
            taken
        } else if first.is_ascii_alphabetic() {
            let taken = name_length(rest);
            tokens.push(Token::Name(rest[..taken].to_owned()));
            taken
        } else if "+-*/(),<>".contains(first) {
            tokens.push(Token::Sign(first));
            1
        } else {
            return Err(format!("\"{first}\" has no meaning here"));
        };
        rest = rest[taken..].trim_start();
    }
    Ok(tokens)
}

/// Bytes of the name that `text` begins with. A star belongs to it between two dots alone; else it multiplies.
fn name_length(text: &str) -> usize {
    let mut taken = 0;
    loop {
        let rest = &text[taken..];
        taken +=
            rest.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '.')).unwrap_or(rest.len());
        if !(text[..taken].ends_with('.') && text[taken..].starts_with("*.")) {
            return taken;
        }
        taken += 1;
    }
}

struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
    depth: u32,
    names: &'a dyn Fn(&str) -> Option<Expression>,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn take_sign(&mut self, signs: &[(char, Operator)]) -> Option<Operator> {
        let Some(Token::Sign(found)) = self.peek() else { return None };
        let operator = signs.iter().find(|(sign, _)| sign == found)?.1;
        self.at += 1;
        Some(operator)
    }

    fn sum(&mut self) -> Result<Expression, String> {
        let mut left = self.product()?;
        while let Some(operator) = self.take_sign(&[('+', Operator::Add), ('-', Operator::Subtract)]) {
            left = Expression::Binary(Box::new(left), operator, Box::new(self.product()?));
        }
        Ok(left)
    }

    fn product(&mut self) -> Result<Expression, String> {
        let mut left = self.term()?;
        while let Some(operator) = self.take_sign(&[('*', Operator::Multiply), ('/', Operator::Divide)]) {
            left = Expression::Binary(Box::new(left), operator, Box::new(self.term()?));
        }
        Ok(left)
    }

    fn term(&mut self) -> Result<Expression, String> {
        self.depth += 1;
        if self.depth > 100 {
            return Err("the expression is nested too deeply".into());
        }
        let token =
            self.peek().cloned().ok_or("the expression ends where a number or a name was expected")?;
        self.at += 1;
        let term = match token {
            Token::Number(number) => Expression::Number(number),
            Token::Sign('-') => Expression::Negated(Box::new(self.term()?)),
            Token::Sign('(') => {
                let inner = self.sum()?;
                self.close()?;
                inner
            }
            Token::Name(name) if self.peek() == Some(&Token::Sign('(')) => self.call(&name)?,
            Token::Name(name) => match (self.names)(&name) {
                Some(expression) => expression,
                None => {
                    let (run, metric) =
                        name.split_once('.').filter(|(_, metric)| !metric.is_empty()).ok_or_else(|| {
                            format!("\"{name}\" is neither defined nor a run's metric such as read.seconds")
                        })?;
                    Expression::Metric { run: run.to_owned(), metric: metric.to_owned(), when: When::AtEnd }
                }
            },
            other => return Err(format!("found {other} where a number or a name was expected")),
        };
        self.depth -= 1;
        Ok(term)
    }

    fn call(&mut self, name: &str) -> Result<Expression, String> {
        if name == OVER_TIME {
            self.at += 1;
            let Expression::Metric { run, metric, .. } = self.sum()? else {
                return Err("over_time takes what a run samples, such as read.contiguity.coverage_128".into());
            };
            self.close()?;
            return Ok(Expression::Metric { run, metric, when: When::OverTime });
        }
        let names: Vec<_> = FUNCTIONS.iter().map(|(name, _)| *name).chain([OVER_TIME]).collect();
        let function = FUNCTIONS.iter().find(|(known, _)| *known == name).map(|(_, function)| *function);
        let function = function.ok_or_else(|| {
            format!("unknown function \"{name}\"{}", super::super::error::suggestion(name, &names))
        })?;
        self.at += 1;
        let mut arguments = vec![self.sum()?];
        while self.peek() == Some(&Token::Sign(',')) {
            self.at += 1;
            let argument = match self.peek() {
                Some(Token::Name(point)) if function == Function::At && !point.contains('.') => {
                    let point = Expression::Point(point.clone());
                    self.at += 1;
                    point
                }
                _ => self.sum()?,
            };
            arguments.push(argument);
        }
        self.close()?;
        let wanted = function.arguments();
        if arguments.len() != wanted {
            return Err(format!("{name} takes {wanted} arguments, not {}", arguments.len()));
        }
        Ok(Expression::Call(function, arguments))
    }

    fn close(&mut self) -> Result<(), String> {
        match self.peek() {
            Some(Token::Sign(')')) => {
                self.at += 1;
                Ok(())
            }
            Some(other) => Err(format!("found {other} where \")\" was expected")),
            None => Err("a bracket is not closed".into()),
        }
    }
}

impl Expression {
    /// What it reads: names of runs with metrics of theirs, each once.
    pub fn metrics(&self) -> Vec<(&str, &str, When)> {
        fn gather<'a>(expression: &'a Expression, metrics: &mut Vec<(&'a str, &'a str, When)>) {
            match expression {
                Expression::Number(_) | Expression::Point(_) => {}
                Expression::Metric { run, metric, when } => {
                    let one = (run.as_str(), metric.as_str(), *when);
                    if !metrics.contains(&one) {
                        metrics.push(one);
                    }
                }
                Expression::Negated(inner) => gather(inner, metrics),
                Expression::Binary(left, _, right) => {
                    gather(left, metrics);
                    gather(right, metrics);
                }
                Expression::Call(_, terms) | Expression::Order(terms, _) => {
                    terms.iter().for_each(|term| gather(term, metrics));
                }
            }
        }
        let mut metrics = Vec::new();
        gather(self, &mut metrics);
        metrics
    }

    /// The value, with `metric(run, name, when)` giving those of the runs. Errors: a missing run or statistic, series over
    /// different points, an order (which has no value).
    pub fn value(&self, metric: &Read<'_>) -> Result<Value, String> {
        match self {
            Expression::Number(number) => Ok(Value::Number(*number)),
            Expression::Metric { run, metric: name, when } => metric(run, name, *when),
            Expression::Point(point) => Err(format!("the point \"{point}\" has no value")),
            Expression::Negated(inner) => pointwise(&Value::Number(0.0), &inner.value(metric)?, |a, b| a - b),
            Expression::Binary(left, operator, right) => {
                let apply = match operator {
                    Operator::Add => |a, b| a + b,
                    Operator::Subtract => |a, b| a - b,
                    Operator::Multiply => |a, b| a * b,
                    Operator::Divide => |a: f64, b| a / b,
                };
                pointwise(&left.value(metric)?, &right.value(metric)?, apply)
            }
            Expression::Call(function, arguments) => {
                let series = match arguments[0].value(metric)? {
                    Value::Series(series) if !series.is_empty() => series,
                    Value::Series(_) | Value::Number(_) => {
                        return Err("a function of a series was given one number".into());
                    }
                };
                let number = |of: &str| match arguments[1].value(metric)? {
                    Value::Number(number) => Ok(number),
                    Value::Series(_) => Err(format!("{of}, not a series")),
                };
                match function {
                    Function::OfAll(reduction) => reduction.of(&series).map(Value::Number),
                    Function::OfEach(reduction) => each(&series, *reduction),
                    Function::At => at(&series, &arguments[1], metric).map(Value::Number),
                    Function::Above => Ok(Value::Number(above(&series, number("above() takes one limit")?))),
                    Function::FirstAbove => {
                        first_above(&series, number("first_above() takes one limit")?).map(Value::Number)
                    }
                    Function::Since => {
                        let start = number("since() takes one point")?;
                        part(&series, |point| point >= start)
                    }
                    Function::Until => {
                        let end = number("until() takes one point")?;
                        part(&series, |point| point <= end)
                    }
                }
            }
            Expression::Order(..) => Err("an order has no value".into()),
        }
    }

    /// For an order: whether it holds at every point, and the values of its terms.
    pub fn order(&self, metric: &Read<'_>) -> Result<Option<(bool, Vec<Value>)>, String> {
        let Expression::Order(terms, direction) = self else { return Ok(None) };
        let values = terms.iter().map(|term| term.value(metric)).collect::<Result<Vec<_>, _>>()?;
        let mut holds = true;
        for pair in values.windows(2) {
            let difference = pointwise(&pair[1], &pair[0], |next, this| next - this)?;
            let rises = |difference: f64| match direction {
                Direction::Rising => difference > 0.0,
                Direction::Falling => difference < 0.0,
            };
            holds &= match difference {
                Value::Number(difference) => rises(difference),
                Value::Series(series) => series.iter().all(|(_, difference)| rises(*difference)),
            };
        }
        Ok(Some((holds, values)))
    }
}

#[cfg(test)]
mod tests;
