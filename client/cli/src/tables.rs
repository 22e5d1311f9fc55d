//! `tables`, `drop`, and the tables that `create` and `load` make.

use anyhow::bail;
use bytesize::ByteSize;
use clap::Args;
use fpcache_client::{ClientError, CreateOptions, KeyKind, RefusalCode, TableInfo, TableName, Tables};
use fpcache_datasets::count::{human, human_bytes};
use serde_json::{Value, json};

use crate::Outcome;
use crate::output::Output;

/// What a table is made with that is not there yet.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct NewTable {
    /// Most bytes that the table may ever have, such as 64MiB, if it is made now; many small tables take less with it [default:
    /// what the memory node has for all tables]
    #[arg(long, value_name = "SIZE")]
    region_bytes: Option<ByteSize>,
}

impl NewTable {
    /// Makes the table if it is not there, and says what its keys are. They must be of this kind; without one they are what they
    /// are, u64 if it is made. Nothing is made that `check` refuses.
    pub(crate) fn ensure(
        self,
        tables: &Tables,
        name: &TableName,
        kind: Option<KeyKind>,
        check: impl Fn(KeyKind) -> anyhow::Result<()>,
    ) -> anyhow::Result<KeyKind> {
        kind.map_or(Ok(()), &check)?;
        let found = tables.list()?.tables.into_iter().find(|table| table.name == *name);
        match (found, kind) {
            (Some(TableInfo { kind: found, .. }), Some(kind)) if found != kind => bail!(
                "the table `{name}` has keys of the kind {found}, not {kind}: use a table of another name with --table, which \
                 is made if it is not there, or drop this one with `fpcache-cli drop {name}`"
            ),
            (Some(TableInfo { kind, .. }), _) => Ok(kind),
            (None, kind) => {
                let kind = kind.unwrap_or(KeyKind::U64);
                check(kind)?;
                let region_bytes = self.region_bytes.map(|size| size.as_u64());
                match tables.create(name, kind, CreateOptions { region_bytes }) {
                    // Somebody else was faster; what its keys are is seen when it is used.
                    Err(ClientError::Refused(refusal)) if refusal.code == RefusalCode::TableExists => {}
                    made => made?,
                }
                Ok(kind)
            }
        }
    }
}

/// Lists the tables.
pub(crate) fn list(tables: &Tables, output: &mut Output) -> anyhow::Result<Outcome> {
    let list = tables.list()?;
    if output.is_json() {
        output.document(&json!({
            "capacity_bytes": list.capacity_bytes,
            "granted_bytes": list.granted_bytes,
            "tables": list.tables.iter().map(document).collect::<Vec<_>>(),
        }))?;
        return Ok(Outcome::Done);
    }
    let longest = list.tables.iter().map(|table| table.name.as_str().len()).max().unwrap_or(0).max(5);
    output.line(format_args!(
        "{:<longest$}  {:<5}  {:>9}  {:>10}  {:>10}  {:>7}",
        "table", "keys", "number", "in use", "at most", "clients"
    ))?;
    for table in &list.tables {
        if table.is_closed() {
            let why = "closed: the memory node could not go on with it, its first words say why";
            output.line(format_args!("{:<longest$}  {why}", table.name))?;
            continue;
        }
        let (keys, used, most) =
            (human(table.keys), human_bytes(table.used_bytes), human_bytes(table.region_bytes));
        output.line(format_args!(
            "{:<longest$}  {:<5}  {keys:>9}  {used:>10}  {most:>10}  {:>7}",
            table.name,
            table.kind.name(),
            table.clients
        ))?;
    }
    let (granted, capacity) = (human_bytes(list.granted_bytes), human_bytes(list.capacity_bytes));
    output.line(format_args!("together {granted} of {capacity}"))?;
    Ok(Outcome::Done)
}

fn document(table: &TableInfo) -> Value {
    json!({
        "name": table.name.as_str(),
        "key_kind": table.kind.name(),
        "keys": table.keys,
        "region_bytes": table.region_bytes,
        "used_bytes": table.used_bytes,
        "clients": table.clients,
        "closed": table.is_closed(),
    })
}

#[derive(Debug, Args)]
pub(crate) struct DropTable {
    /// The table to remove, with all its records
    #[arg(value_name = "NAME")]
    name: TableName,

    /// Do it: nothing brings the records back
    #[arg(long)]
    yes: bool,
}

impl DropTable {
    pub(crate) fn run(&self, tables: &Tables, output: &mut Output) -> anyhow::Result<Outcome> {
        let name = &self.name;
        let found = tables.list()?.tables.into_iter().find(|table| table.name == *name);
        if found.is_some_and(|table| table.is_closed()) && !self.yes {
            bail!(
                "`{name}` is closed, and nothing brings its records back once it is dropped: say --yes to drop it"
            );
        }
        if let (Some(TableInfo { keys, clients, .. }), false) = (found, self.yes) {
            bail!(
                "`{name}` has {keys} keys and {clients} clients, and nothing brings the records back: say --yes to drop it"
            );
        }
        tables.drop_table(name)?;
        if output.is_json() {
            let found = found.as_ref();
            output.document(&json!({
                "dropped": name.as_str(),
                "keys": found.map(|table| table.keys),
                "used_bytes": found.map(|table| table.used_bytes),
            }))?;
        }
        Ok(Outcome::Done)
    }
}
