//! No dead knobs: every parameter of a memory device changes what the device does, every key of a translation scheme, of a
//! core model, of nested paging, of translation coherence in hardware and of a GPU a run (`schemes.rs`, `designs.rs`).
//!
//! Each parameter is set to other values within its range, and every preset plays the same reads and writes. If no value
//! changes a completion time, a counter or an energy, the test fails. Keys of schemes likewise change a statistic of a run.

mod designs;
mod schemes;
#[path = "../machine_support/mod.rs"]
mod support;

use terrace_model::parameters::{Declared, Kind, ParameterInfo};
use terrace_model::{Bytes, BytesPerSec, Cycles, Energy, Frequency, Random, Time};
use terrace_sim::memory::{Device, DeviceLine, DeviceParameters, Initiator, preset_names, preset_table};

/// Other values of a parameter: the other words, numbers below and above, and both ends of its range.
fn others(parameter: &ParameterInfo, value: &str) -> Vec<String> {
    let scaled = |by: f64| -> Option<String> {
        let number = value.parse::<f64>().ok().map(|number| number * by);
        let quantity =
            value.parse::<Bytes>().map(|bytes| Bytes((bytes.0 as f64 * by) as u64).to_string()).ok();
        let quantity = quantity
            .or_else(|| Some(Time((value.parse::<Time>().ok()?.0 as f64 * by) as u64).to_string()))
            .or_else(|| Some(Cycles((value.parse::<Cycles>().ok()?.0 * by).round()).to_string()))
            .or_else(|| Some(Frequency(value.parse::<Frequency>().ok()?.0 * by).to_string()))
            .or_else(|| Some(BytesPerSec(value.parse::<BytesPerSec>().ok()?.0 * by).to_string()))
            .or_else(|| Some(Energy(value.parse::<Energy>().ok()?.0 * by).to_string()));
        match parameter.kind {
            Kind::Count => number.map(|number| format!("{}", number.round() as u64)),
            Kind::Number => number.map(|number| format!("{number:?}")),
            _ => quantity,
        }
    };
    let ends = parameter.range.iter().flat_map(|range| [range.low.clone(), range.high.clone()]);
    let ends = ends.filter(|end| !end.contains(" or "));
    let mut others: Vec<String> = match parameter.kind {
        Kind::Switch => vec![(value != "true").to_string()],
        Kind::Choice => parameter.choices.iter().map(|choice| choice.name.clone()).collect(),
        // The more a value differs, the likelier it shows at once.
        _ => {
            let far = [16.0, 0.0625].into_iter().filter_map(scaled);
            far.chain(ends).chain([4.0, 0.25, 2.0, 0.5].into_iter().filter_map(scaled)).collect()
        }
    };
    if value.starts_with('[') {
        others = others.into_iter().map(|other| format!("[\"{other}\"]")).collect();
    }
    others.retain(|other| other != value);
    others
}

/// Runs with all keys as they are, each made when it is first compared with.
struct Before<'a, T> {
    runs: Box<dyn Iterator<Item = T> + 'a>,
    made: Vec<T>,
}

impl<'a, T> Before<'a, T> {
    fn new(runs: impl Iterator<Item = T> + 'a) -> Before<'a, T> {
        Before { runs: Box::new(runs), made: Vec::new() }
    }

    fn at(&mut self, at: usize) -> &T {
        while self.made.len() <= at {
            self.made.push(self.runs.next().unwrap());
        }
        &self.made[at]
    }
}

/// A table of a device, changed as the lines of `changes` say.
fn device(preset: &str, changes: &str) -> toml::Table {
    let mut table: toml::Table = preset_table(preset).unwrap().parse().unwrap();
    let changes: toml::Table = changes.parse().unwrap();
    for (key, value) in changes {
        match (table.get_mut(&key), value) {
            (Some(toml::Value::Table(below)), toml::Value::Table(above)) => below.extend(above),
            (_, value) => drop(table.insert(key, value)),
        }
    }
    table
}

/// The value at a key; the first element stands for all of a list.
fn at<'a>(table: &'a mut toml::Table, key: &str) -> Option<&'a mut toml::Value> {
    let mut parts = key.split('.');
    let mut value = table.get_mut(parts.next()?)?;
    for part in parts {
        value = if part == "*" { value.as_array_mut()?.first_mut()? } else { value.get_mut(part)? };
    }
    Some(value)
}

/// What a device does with reads and writes, alone, in bursts and after pauses.
fn run_device(table: &toml::Table) -> Option<String> {
    let parameters: DeviceParameters = table.clone().try_into().ok()?;
    parameters.check().ok()?;
    let mut device = Device::new(&parameters).ok()?;
    let (mut random, mut now) = (Random::new(1), Time::ZERO);
    let mut done = String::new();
    for step in 0..6_000u64 {
        // Lines in a row, lines of the same few rows, and lines anywhere in 64 MiB.
        let line = match step / 500 % 3 {
            0 => step,
            1 => (step % 4) * 4096 + step % 7,
            _ => random.below(1 << 20),
        };
        let burst = step % 1000 < 600;
        let write = if step % 2000 < 1000 { step % 3 == 0 } else { burst };
        let end = match write {
            true => device.write(DeviceLine(line), now, Initiator::Writeback),
            false => device.read(DeviceLine(line), now, Initiator::Demand),
        };
        done += &format!("{} ", end.0);
        if step % 512 == 0 {
            // From the last lines to the first ones, where rows move between segments.
            done += &format!(
                "{:?} ",
                device.transfer(DeviceLine((1 << 20) - step), DeviceLine(step), now, Initiator::Copy)
            );
        }
        // A read waits now and then; a pause is long enough for rows to close.
        now = match step % 16 {
            15 if !burst => end.max(now) + Time::from_nanos(900),
            7 => end.max(now),
            _ => now + Time::from_nanos(2),
        };
    }
    let device = device.settled(now + Time::from_nanos(100_000));
    Some(format!("{done}{:?}{:?}", device.counters(), device.energy(now)))
}

#[test]
fn every_parameter_of_a_device_changes_what_it_does() {
    let segments = "[bank]\nclose_after = \"300 ns\"\nt_rp_dirty = \"40 ns\"\nt_rrd_precharge = \"20 ns\"\n\
         random_access_interval = \"9 ns\"\nrandom_write_interval = \"12 ns\"\n\
         t_transfer = \"4 ns\"\n[[bank.segments]]\nend = \"1 MiB\"\nt_rcd = \"8 ns\"\nt_rp = \"8 ns\"\nt_ras = \"18 ns\"\nt_wr = \"9 ns\"\n";
    let mut devices: Vec<toml::Table> = preset_names().map(|preset| device(preset, "")).collect();
    devices.push(device("ddr4-2400", segments));
    let before: Vec<_> = devices.iter().map(|table| run_device(table).unwrap()).collect();
    let notes = ["source", "assumed", "calibrated"];
    let has_effect = |parameter: &ParameterInfo| {
        devices.iter().zip(&before).any(|(table, before)| {
            let mut table = table.clone();
            let Some(value) = at(&mut table, &parameter.name).cloned() else { return false };
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            others(parameter, &text).iter().any(|other| {
                let other = match other.parse::<i64>() {
                    Ok(number) => toml::Value::Integer(number),
                    Err(_) => other.parse().map_or_else(|_| other.as_str().into(), toml::Value::Boolean),
                };
                *at(&mut table, &parameter.name).unwrap() = other;
                run_device(&table).is_some_and(|after| after != *before)
            })
        })
    };
    let declared = DeviceParameters::declared();
    let dead = declared.iter().filter(|one| !notes.contains(&one.name.as_str()));
    let dead = dead.filter(|one| !has_effect(one));
    let dead: Vec<&str> = dead.map(|one| one.name.as_str()).collect();
    assert!(dead.is_empty(), "no value of these changes anything: {dead:?}");
}
