//! Where a table is, of the memory nodes in the URL.

use anyhow::bail;
use fpcache_client::{KeyKind, TableInfo, TableName, Tables};

use crate::table_arguments::TableArguments;

/// A memory node with the table, or at which it is to be created.
pub(crate) struct TableNode {
    pub(crate) place: TableArguments,
    pub(crate) tables: Tables,
}

/// Where the table of a place is. That one memory node has no such table says nothing of the
/// others: all are asked until one has it.
pub(crate) enum TableLocation {
    At(TableNode, TableInfo),
    /// Over several memory nodes, with keys of this kind.
    Divided(KeyKind),
    Nowhere(TableNotFound),
}

/// Memory nodes of which none that answers has the table.
pub(crate) struct TableNotFound {
    /// The first of those that answer.
    first: Option<TableNode>,
    /// The tables that there are.
    others: Vec<TableName>,
    /// Why the others do not answer.
    away: Vec<String>,
    /// How many were asked.
    asked: usize,
}

impl TableLocation {
    /// Asks the memory nodes in their order.
    pub(crate) fn of(place: &TableArguments) -> anyhow::Result<Self> {
        let places = place.each()?;
        let mut nowhere =
            TableNotFound { first: None, others: Vec::new(), away: Vec::new(), asked: places.len() };
        for place in places {
            let asked = place.tables().and_then(|tables| Ok((tables.list()?, tables)));
            let (list, tables) = match asked {
                Ok(asked) => asked,
                // It says best what is to be done.
                Err(error) if nowhere.asked == 1 => return Err(error.into()),
                Err(error) => {
                    nowhere.away.push(place.why(&error));
                    continue;
                }
            };
            let is_range = |info: &&TableInfo| info.name.as_range().is_some_and(|(of, ..)| of == place.table);
            if let Some(info) = list.tables.iter().find(|info| info.name == place.table) {
                return Ok(Self::At(TableNode { place, tables }, *info));
            }
            if let Some(range) = list.tables.iter().find(is_range) {
                return Ok(Self::Divided(range.kind));
            }
            nowhere.others.extend(list.tables.iter().map(|info| info.name));
            nowhere.first.get_or_insert(TableNode { place, tables });
        }
        Ok(Self::Nowhere(nowhere))
    }

    /// The kind of the table's keys, if there is one; an error if it is not the wanted one.
    pub(crate) fn kind(&self, name: &TableName, wanted: Option<KeyKind>) -> anyhow::Result<Option<KeyKind>> {
        let found = match self {
            Self::At(_, info) => info.kind,
            Self::Divided(kind) => *kind,
            Self::Nowhere(_) => return Ok(None),
        };
        match wanted {
            Some(wanted) if found != wanted => bail!(
                "the table `{name}` has keys of the kind {found}, not {wanted}: use another table with --table, which is \
                 created if it does not exist, or drop this one with `fpcache-cli drop {name}`"
            ),
            _ => Ok(Some(found)),
        }
    }
}

impl TableNotFound {
    /// Tables that are named.
    const NAMED: usize = 8;

    /// Where the table is to be created: at the first memory node, once all have said that they
    /// have none.
    pub(crate) fn at_first(self, name: &TableName) -> anyhow::Result<TableNode> {
        match self {
            Self { first: Some(first), away, .. } if away.is_empty() => Ok(first),
            nowhere => bail!("{}", nowhere.explain_absence(name)),
        }
    }

    /// Says that there is no such table, or that there may be one.
    pub(crate) fn explain_absence(&self, name: &TableName) -> String {
        if !self.away.is_empty() {
            let (away, asked, why) = (self.away.len(), self.asked, self.away.join("; "));
            return format!(
                "{away} of {asked} memory nodes do not answer, and may have the table `{name}`, which the others do not have: {why}"
            );
        }
        // Of a table over several memory nodes each has ranges.
        let whole = |name: &TableName| format!("`{}`", name.as_range().map_or(*name, |(of, ..)| of));
        let mut names: Vec<String> = self.others.iter().map(whole).collect();
        names.sort();
        names.dedup();
        let more = names.len().saturating_sub(Self::NAMED);
        names.truncate(Self::NAMED);
        names.extend((more > 0).then(|| format!("and {more} others")));
        let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        format!("there is no table `{name}`; the tables are: {there}")
    }
}
