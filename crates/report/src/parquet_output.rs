//! Columns as a Parquet file, for data frames and databases.

use crate::{Column, Columns};
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;
use std::sync::Arc;

/// A column's values that are there, and for each row whether it has one.
struct Filled<T> {
    values: Vec<T>,
    levels: Vec<i16>,
}

impl<T> Filled<T> {
    fn of<V>(values: &[Option<V>], convert: impl Fn(&V) -> T) -> Filled<T> {
        Filled {
            values: values.iter().flatten().map(convert).collect(),
            levels: values.iter().map(|value| i16::from(value.is_some())).collect(),
        }
    }
}

impl Columns {
    /// The table as a Parquet file: one row group, compressed by Zstandard, each column optional. Texts are strings, counts
    /// are integers of 64 bits (without sign only where a value needs the 64th), quantities are doubles, and what is true or
    /// false is Boolean.
    pub fn to_parquet(&self) -> Vec<u8> {
        self.try_parquet().expect("writing columns of equal length to memory")
    }

    fn try_parquet(&self) -> Result<Vec<u8>, ParquetError> {
        let fields = self.columns.iter().map(|(name, column)| field(name, column).map(Arc::new));
        let schema =
            Type::group_type_builder("schema").with_fields(fields.collect::<Result<_, _>>()?).build()?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_created_by(format!("terrace {}", env!("CARGO_PKG_VERSION")))
            .build();
        let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties))?;
        let mut group = writer.next_row_group()?;
        for (_, column) in &self.columns {
            match column {
                Column::Text(values) => {
                    let filled = Filled::of(values, |text| ByteArray::from(text.as_str()));
                    write::<ByteArrayType>(&mut group, &filled)?;
                }
                Column::Boolean(values) => {
                    write::<BoolType>(&mut group, &Filled::of(values, |value| *value))?
                }
                // The bits of what is written without a sign.
                Column::Integer(values) => {
                    write::<Int64Type>(&mut group, &Filled::of(values, |value| value.cast_signed()))?;
                }
                Column::Real(values) => write::<DoubleType>(&mut group, &Filled::of(values, |value| *value))?,
            }
        }
        group.close()?;
        writer.into_inner()
    }
}

fn field(name: &str, column: &Column) -> Result<Type, ParquetError> {
    let (physical, logical) = match column {
        Column::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Column::Boolean(_) => (Physical::BOOLEAN, None),
        Column::Integer(values) => {
            let is_large = values.iter().flatten().any(|value| i64::try_from(*value).is_err());
            let unsigned = LogicalType::integer(64, false);
            (Physical::INT64, is_large.then_some(unsigned))
        }
        Column::Real(_) => (Physical::DOUBLE, None),
    };
    Type::primitive_type_builder(name, physical)
        .with_repetition(Repetition::OPTIONAL)
        .with_logical_type(logical)
        .build()
}

fn write<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    filled: &Filled<T::T>,
) -> Result<(), ParquetError> {
    let mut column = group.next_column()?.expect("the schema has as many columns");
    column.typed::<T>().write_batch(&filled.values, Some(&filled.levels), None)?;
    column.close()
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    #[test]
    fn what_is_written_is_read_back() {
        let columns = Columns {
            columns: vec![
                (
                    "name".to_owned(),
                    Column::Text(vec![Some("a,\"b\"é".to_owned()), None, Some(String::new())]),
                ),
                ("fits".to_owned(), Column::Boolean(vec![Some(true), None, Some(false)])),
                ("count".to_owned(), Column::Integer(vec![Some(3), Some(0), None])),
                ("large".to_owned(), Column::Integer(vec![Some(u64::MAX), None, Some(1)])),
                ("share".to_owned(), Column::Real(vec![None, Some(0.1), Some(-2.5e-300)])),
            ],
        };
        let reader = SerializedFileReader::new(bytes::Bytes::from(columns.to_parquet())).unwrap();
        let rows: Vec<Vec<(String, Field)>> = reader
            .get_row_iter(None)
            .unwrap()
            .map(|row| row.unwrap().get_column_iter().map(|(n, f)| (n.clone(), f.clone())).collect())
            .collect();
        let value = |row: usize, name: &str| {
            rows[row].iter().find(|(own, _)| own == name).map(|(_, field)| field.clone()).unwrap()
        };
        assert_eq!(rows.len(), 3);
        let names: Vec<_> = rows[0].iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["name", "fits", "count", "large", "share"]);
        let fits = [0, 1, 2].map(|row| value(row, "fits"));
        assert_eq!(fits, [Field::Bool(true), Field::Null, Field::Bool(false)]);
        assert_eq!(value(0, "name"), Field::Str("a,\"b\"é".to_owned()));
        assert_eq!((value(1, "name"), value(2, "name")), (Field::Null, Field::Str(String::new())));
        assert_eq!((value(0, "count"), value(2, "count")), (Field::Long(3), Field::Null));
        assert_eq!((value(0, "large"), value(2, "large")), (Field::ULong(u64::MAX), Field::ULong(1)));
        assert_eq!((value(1, "share"), value(2, "share")), (Field::Double(0.1), Field::Double(-2.5e-300)));
    }

    #[test]
    fn the_runs_of_a_comparison_and_none_are_tables() {
        let columns = crate::test_data::comparison().columns();
        let reader = SerializedFileReader::new(bytes::Bytes::from(columns.to_parquet())).unwrap();
        let metadata = reader.metadata().file_metadata();
        assert_eq!(metadata.num_rows(), 3);
        assert_eq!(metadata.schema_descr().num_columns(), columns.columns.len());
        assert_eq!(columns.to_parquet(), columns.to_parquet(), "equal tables are equal files");
        let none = crate::Comparison::default().columns().to_parquet();
        let reader = SerializedFileReader::new(bytes::Bytes::from(none)).unwrap();
        assert_eq!(reader.metadata().file_metadata().num_rows(), 0);
    }
}
