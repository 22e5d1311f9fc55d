//! The `tables` and `drop` commands, and the creation of tables by `create` and `load`.

use anyhow::{Error, anyhow, bail, ensure};
use bytesize::ByteSize;
use clap::Args;
use fpcache_client::{
    ClientError, CreateOptions, DividedTable, KeyKind, Nodes, TableInfo, TableList, TableName,
};
use fpcache_datasets::count::{human, human_bytes};
use serde_json::{Value, json};

use crate::numbers::size;
use crate::output::{Outcome, Output, counted};
use crate::table_arguments::TableArguments;
use crate::table_location::{TableLocation, TableNode};

/// Options of a new table.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct NewTable {
    /// Maximum memory of a new table, such as 64MiB; many small tables take less with it [default:
    /// the capacity of the memory node]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    region_bytes: Option<ByteSize>,
}

/// The table of a command, and whether the command created it.
pub(crate) struct Ensured {
    pub(crate) kind: KeyKind,
    /// The memory node that has it.
    pub(crate) spot: TableNode,
    is_new: bool,
}

impl Ensured {
    /// Removes the table again if the command that created it failed, unless it has records, which
    /// are from another client.
    pub(crate) fn undo(&self) {
        let TableNode { place, tables } = &self.spot;
        if self.is_new && matches!(tables.find(&place.table), Ok(Some(TableInfo { keys: 0, .. }))) {
            // The command's own error says more than one of this.
            let _ = tables.drop_table(&place.table);
        }
    }
}

impl NewTable {
    /// Options for creating the table.
    pub(crate) fn options(self) -> CreateOptions {
        CreateOptions::default().with_region_bytes(self.region_bytes.map(|size| size.as_u64()))
    }

    /// Refuses another size of its region than a table has, which nothing changes.
    pub(crate) fn check_region(self, table: &TableInfo) -> anyhow::Result<()> {
        // Regions are whole pages.
        const LARGEST_PAGE: u64 = 2 << 20;
        let Some(wanted) = self.region_bytes else { return Ok(()) };
        let has = table.region_bytes;
        ensure!(
            // What a closed one has is not known.
            table.is_closed()
                || (wanted.as_u64()..wanted.as_u64().saturating_add(LARGEST_PAGE)).contains(&has),
            "the table `{}` is there already, with a region of {}, which cannot be changed: omit --region-bytes, or export its \
             records and import them into a new table",
            table.name,
            human_bytes(has)
        );
        Ok(())
    }

    /// The same, of each range of a table over several memory nodes, which are those of the place.
    pub(crate) fn check_regions(self, place: &TableArguments) -> anyhow::Result<()> {
        if self.region_bytes.is_none() {
            return Ok(());
        }
        for place in place.each()? {
            for table in retained(place.tables()?.list()?, Some(&place.table)).tables {
                self.check_region(&table)?;
            }
        }
        Ok(())
    }

    /// Creates the table if no memory node of the place has it, and returns the kind of its keys.
    /// They must be of the given kind, if any; a new table has u64 keys by default.
    pub(crate) fn ensure(self, place: &TableArguments, wanted: Option<KeyKind>) -> anyhow::Result<Ensured> {
        let (name, found) = (&place.table, TableLocation::of(place)?);
        found.kind(name, wanted)?;
        match found {
            TableLocation::At(spot, table) => {
                self.check_region(&table)?;
                Ok(Ensured { kind: table.kind, spot, is_new: false })
            }
            TableLocation::Divided(_) => bail!(
                "there is a table `{name}` over several memory nodes: use it, drop it, or choose another name"
            ),
            TableLocation::Nowhere(nowhere) => {
                let (spot, kind) = (nowhere.at_first(name)?, wanted.unwrap_or(KeyKind::U64));
                // Another client may be faster.
                let is_new = spot.tables.create_if_missing(name, kind, self.options())?;
                Ok(Ensured { kind, spot, is_new })
            }
        }
    }
}

/// Lists the tables of each memory node, or the one of this name and the ranges of it that lie
/// there. Where some do not answer it lists those of the others, and then fails.
pub(crate) fn list(
    place: &TableArguments,
    only: Option<&TableName>,
    output: &mut Output,
) -> anyhow::Result<Outcome> {
    let places = place.each()?;
    if let [place] = places.as_slice() {
        let (list, divided) = ask(place)?;
        let names: Vec<String> =
            list.tables.iter().map(|table| format!("`{}`", shown(&table.name, &divided))).collect();
        let list = retained(list, only);
        if let Some(name) = only.filter(|_| list.tables.is_empty()) {
            bail!("there is no table `{name}`; the tables are: {}", names.join(", "));
        }
        match output.is_json() {
            true => {
                output.element(&of_node(place, &list, &divided))?;
                output.end_array()?;
            }
            false => tell(&list, &divided, output)?,
        }
        return Ok(Outcome::Done);
    }
    let (mut failed, mut found) = (Vec::new(), false);
    for (i, place) in places.iter().enumerate() {
        let (list, divided) = match ask(place) {
            Ok(told) => told,
            Err(error) => {
                failed.push(place.why(&error));
                continue;
            }
        };
        let list = retained(list, only);
        found |= !list.tables.is_empty();
        if output.is_json() {
            output.element(&of_node(place, &list, &divided))?;
        } else {
            let before = if i > 0 { "\n" } else { "" };
            output.line(format_args!("{before}{}:", place.url))?;
            tell(&list, &divided, output)?;
        }
    }
    output.end_array()?;
    none_failed(&failed, places.len())?;
    if let Some(name) = only.filter(|_| !found) {
        bail!("there is no table `{name}` at any of these memory nodes");
    }
    Ok(Outcome::Done)
}

/// The tables of a memory node, and those over several of which it has ranges.
fn ask(place: &TableArguments) -> Result<(TableList, Vec<DividedTable>), ClientError> {
    let tables = place.tables()?;
    let list = tables.list()?;
    let has_ranges = list.tables.iter().any(|table| table.name.as_range().is_some());
    let divided = if has_ranges { tables.divided()? } else { Vec::new() };
    Ok((list, divided))
}

/// All tables, or those that belong to the one of this name.
fn retained(mut list: TableList, only: Option<&TableName>) -> TableList {
    if let Some(name) = only {
        // Of one over several memory nodes the range that lies here has more to its name.
        let range = format!("{name}@");
        list.tables.retain(|table| table.name == *name || table.name.as_str().starts_with(&range));
    }
    list
}

fn of_node(place: &TableArguments, list: &TableList, divided: &[DividedTable]) -> Value {
    json!({
        "url": place.url,
        "capacity_bytes": list.capacity_bytes,
        "granted_bytes": list.granted_bytes,
        "tables": list.tables.iter().map(|table| document(table, divided)).collect::<Vec<_>>(),
    })
}

/// Fails if some of the `of` memory nodes could not be asked, for these reasons.
pub(crate) fn none_failed(failed: &[String], of: usize) -> anyhow::Result<()> {
    ensure!(
        failed.is_empty(),
        "{} of {of} memory nodes could not be asked: {}",
        failed.len(),
        failed.join("; ")
    );
    Ok(())
}

/// Writes a memory node's tables, one a line.
fn tell(list: &TableList, divided: &[DividedTable], output: &mut Output) -> anyhow::Result<()> {
    let shown: Vec<String> = list.tables.iter().map(|table| shown(&table.name, divided)).collect();
    let longest = shown.iter().map(String::len).max().unwrap_or(0).max(5);
    output.line(format_args!(
        "{:<longest$}  {:<5}  {:>9}  {:>10}  {:>10}  {:>7}",
        "table", "keys", "number", "in use", "at most", "clients"
    ))?;
    for (table, name) in list.tables.iter().zip(&shown) {
        if table.is_closed() {
            let why = "closed: the memory node could not open it; its output at start-up says why";
            output.line(format_args!("{name:<longest$}  {why}"))?;
            continue;
        }
        let (keys, used, most) =
            (human(table.keys), human_bytes(table.used_bytes), human_bytes(table.region_bytes));
        output.line(format_args!(
            "{name:<longest$}  {:<5}  {keys:>9}  {used:>10}  {most:>10}  {:>7}",
            table.kind.name(),
            table.clients
        ))?;
    }
    let (granted, capacity) = (human_bytes(list.granted_bytes), human_bytes(list.capacity_bytes));
    output.line(format_args!("together {granted} of {capacity}"))?;
    Ok(())
}

/// Of a table over several memory nodes that this names a range of: the name, which range it is,
/// from 1, and of how many, if that is known.
fn range_of(name: &TableName, divided: &[DividedTable]) -> Option<(TableName, u32, Option<usize>)> {
    let (table, creation, number) = name.as_range()?;
    let found = divided.iter().find(|of| (of.name, of.creation) == (table, creation));
    Some((table, number + 1, found.map(|of| of.ranges)))
}

/// A table as it is listed.
fn shown(name: &TableName, divided: &[DividedTable]) -> String {
    match range_of(name, divided) {
        None => name.to_string(),
        Some((table, range, Some(count))) => format!("{table}, range {range} of {count}"),
        Some((table, range, None)) => format!("{table}, range {range}"),
    }
}

fn document(table: &TableInfo, divided: &[DividedTable]) -> Value {
    let range = range_of(&table.name, divided);
    json!({
        "name": table.name.as_str(),
        "range_of": range.map(|(table, ..)| table.to_string()),
        "range": range.map(|(_, range, _)| range),
        "ranges": range.and_then(|(.., count)| count),
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
    /// Tables to remove, with all their records; none if one of them is not there [default: the one
    /// named by --table]
    #[arg(value_name = "NAME")]
    names: Vec<TableName>,

    /// Confirm: the records cannot be restored
    #[arg(long)]
    yes: bool,

    /// Remove only the ranges of these memory nodes, of a table over several; for when the others
    /// are gone for good
    #[arg(long, value_name = "URL,URL")]
    nodes: Option<String>,

    /// Remove a single range by its own name, NAME@CREATION.NUMBER, of a table over several memory
    /// nodes, which cannot be used without it
    #[arg(long, conflicts_with = "nodes")]
    range: bool,
}

/// Removes a table, and returns what is told of that.
type Removal = Box<dyn FnOnce() -> anyhow::Result<Value>>;

impl DropTable {
    /// Removes the tables that are named, among them that of `--table`, if it was given.
    pub(crate) fn run(
        &self,
        place: &TableArguments,
        of_option: Option<TableName>,
        output: &mut Output,
    ) -> anyhow::Result<Outcome> {
        let names = match (self.names.as_slice(), of_option) {
            ([], None) => bail!("name the table to drop: fpcache-cli drop NAME"),
            ([], Some(name)) => vec![name],
            (names, None) => names.to_vec(),
            (names, Some(option)) if names.contains(&option) => names.to_vec(),
            (_, Some(option)) => {
                bail!("--table names `{option}`, but other tables are to be dropped: name all of them once")
            }
        };
        if names.len() > 1 {
            // None is dropped if one cannot be.
            names.iter().try_for_each(|name| self.look_up(name, place).map(drop))?;
        }
        for (i, name) in names.iter().enumerate() {
            let dropped = self.look_up(name, place).and_then(|remove| remove()).map_err(|error| match i {
                0 => error,
                _ => error.context(format!("after {i} of {} tables were dropped", names.len())),
            })?;
            match names.as_slice() {
                _ if !output.is_json() => {}
                [_] => output.document(&dropped)?,
                _ => output.element(&dropped)?,
            }
        }
        if names.len() > 1 {
            output.end_array()?;
        }
        Ok(Outcome::Done)
    }

    /// Sees that a table is there and to be removed.
    fn look_up(&self, name: &TableName, place: &TableArguments) -> anyhow::Result<Removal> {
        if let (Some((table, _, number)), false) = (name.as_range(), self.range) {
            bail!(
                "`{name}` is range {} of the table `{table}` over several memory nodes, which cannot be used without it: drop the whole \
                 table with `fpcache-cli drop {table} --yes`; where its other memory nodes are gone for good, what this one has of it with \
                 `fpcache-cli drop {table} --nodes '{}' --yes`; or add --range to drop it alone",
                number + 1,
                place.url
            );
        }
        let (nodes, here) = match &self.nodes {
            Some(urls) => (Nodes::at_with(urls, place.config())?, true),
            None => (place.nodes()?, false),
        };
        if here {
            return self.look_up_over(name, nodes, true);
        }
        let (tables, found) = match TableLocation::of(&TableArguments { table: *name, ..place.clone() })? {
            TableLocation::At(TableNode { tables, .. }, found) => (tables, found),
            TableLocation::Divided(_) if nodes.find(name)?.is_some() => {
                return self.look_up_over(name, nodes, false);
            }
            // Ranges that are closed have no map, but are not to be taken for nothing.
            TableLocation::Divided(_) => return Ok(drop_over(*name, nodes, false)),
            TableLocation::Nowhere(nowhere) => bail!(nowhere.explain_absence(name)),
        };
        if found.is_closed() && !self.yes {
            bail!(
                "`{name}` is closed, and its records cannot be restored once it is dropped: confirm with --yes"
            );
        }
        let TableInfo { keys, used_bytes, clients, .. } = found;
        if !self.yes {
            let clients = counted(clients, "client");
            if keys == 0 {
                bail!("`{name}` is empty and has {clients}: confirm with --yes");
            }
            bail!(
                "`{name}` has {} and {clients}, and its records cannot be restored: confirm with --yes",
                counted(keys, "key")
            );
        }
        let name = *name;
        let removal: Removal = Box::new(move || {
            tables.drop_table(&name)?;
            Ok(json!({ "dropped": name.as_str(), "keys": keys, "used_bytes": used_bytes }))
        });
        Ok(removal)
    }

    /// The same of a table over several memory nodes, or of the ranges of some of them.
    fn look_up_over(&self, name: &TableName, nodes: Nodes, here: bool) -> anyhow::Result<Removal> {
        // Whether memory nodes tell of their ranges or not: those that are closed do not.
        if !self.yes {
            let what =
                if here { "what these memory nodes have of it" } else { "a table over several memory nodes" };
            bail!("`{name}`: {what} cannot be restored once it is dropped: confirm with --yes");
        }
        Ok(drop_over(*name, nodes, here))
    }
}

fn drop_over(name: TableName, nodes: Nodes, here: bool) -> Removal {
    Box::new(move || {
        match here {
            true => nodes.drop_here(&name)?,
            false => nodes.drop_table(&name).map_err(|error| left_over(&name, error))?,
        }
        Ok(json!({ "dropped": name.as_str() }))
    })
}

/// The error of a drop, with what to do if the memory node that does not answer never will.
fn left_over(name: &TableName, error: ClientError) -> Error {
    match error {
        ClientError::NodeAway { node, error } => anyhow!(
            "`{name}` was not dropped, because the memory node {node} does not answer ({error}): repeat this when it is back; if it is \
             gone for good, drop what the others have of it with `fpcache-cli drop {name} --nodes URL,URL --yes`, naming them"
        ),
        error => error.into(),
    }
}
