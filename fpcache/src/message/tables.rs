//! Requests about a memory node's tables, which any of its connections takes.
//!
//! ```text
//! request          0 operation u16 · 2 protocol version u16 · 4 zero u32 · 8 body
//!
//!  8 table create  0 key kind u32 (1 u64, 2 bytes) · 4 bytes of the name u32 · 8 bytes of its region u64 (0: as many as there are) · 16 name
//!                  reply empty
//!  9 table list    0 bytes of the name u32 · 4 zero u32 · 8 name: the tables after this one; empty: from the first
//!                  reply: 0 bytes the tables may use together u64 · 8 bytes they have of these u64 · 16 tables u32
//!                         20 whether more follow u32 · 24 the tables, in the order of their names
//! 10 table drop    0 bytes of the name u32 · 4 zero u32 · 8 name    reply empty
//!
//! a table          0 key kind u32 · 4 bytes of the name u32 · 8 keys u64 · 16 bytes of its region u64 · 24 bytes in use u64
//!                  32 connected clients u64 · 40 name
//! ```
//!
//! Kinds of keys have the numbers that they have in a table's record.

use super::header::{MessageError, begin, end, length_of, malformed, operation_of, split};
use crate::cursor::{Cursor, CutShort};
use crate::key_space::KeyKind;
use crate::table_name::{TableName, TableNameError};

/// Most tables in one reply.
pub const MOST_LISTED: usize = 512;

/// The first tables there are, and how many more, in words: for the error that no table has a name.
/// Of one over several memory nodes it names the table, which is what commands are given.
pub fn some_names<'n>(names: impl ExactSizeIterator<Item = &'n TableName>) -> String {
    /// Tables that are named.
    const NAMED: usize = 8;
    let more = names.len().saturating_sub(NAMED);
    let shown = |name: &TableName| match name.as_range() {
        Some((table, _, number)) => format!("`{table}` (range {})", number + 1),
        None => format!("`{name}`"),
    };
    let mut shown: Vec<String> = names.take(NAMED).map(shown).collect();
    if more > 0 {
        shown.push(format!("and {more} others"));
    }
    if shown.is_empty() { "none".to_owned() } else { shown.join(", ") }
}

/// A request about a memory node's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TablesRequest {
    /// Makes an empty table.
    Create {
        /// Its name.
        name: TableName,
        /// The kind of its keys.
        kind: KeyKind,
        /// Bytes of its region; `None`: as many as the memory node has for all tables.
        region_bytes: Option<u64>,
    },
    /// Asks which tables there are, in the order of their names.
    List {
        /// Those after this name; `None`: from the first.
        after: Option<TableName>,
    },
    /// Removes a table and all its records.
    Drop {
        /// Its name.
        name: TableName,
    },
}

/// Errors of requests about tables that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TablesError {
    /// Not a request of this version.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// No table can be called so.
    #[error(transparent)]
    Name(#[from] TableNameError),
}

impl From<CutShort> for TablesError {
    fn from(cut: CutShort) -> Self {
        Self::Message(cut.into())
    }
}

/// A table as its memory node tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableInfo {
    /// Its name.
    pub name: TableName,
    /// The kind of its keys.
    pub kind: KeyKind,
    /// Live records.
    pub keys: u64,
    /// Bytes of its region: more it will never have. 0: the table is [closed](Self::is_closed).
    pub region_bytes: u64,
    /// Bytes of it in use.
    pub used_bytes: u64,
    /// Connected clients.
    pub clients: u64,
}

impl TableInfo {
    /// Whether the memory node could not go on with the table: it is there and not served.
    pub fn is_closed(&self) -> bool {
        self.region_bytes == 0
    }
}

/// Some of a memory node's tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TablesPage {
    /// Bytes that all tables may use together.
    pub capacity_bytes: u64,
    /// Bytes that they have of these.
    pub granted_bytes: u64,
    /// The tables, in the order of their names.
    pub tables: Vec<TableInfo>,
    /// Whether more follow.
    pub has_more: bool,
}

fn kind_of(id: u32) -> Result<KeyKind, MessageError> {
    KeyKind::of_id(id).ok_or_else(|| malformed(format!("keys of the kind {id} are unknown")))
}

impl TablesRequest {
    const CREATE: u16 = 8;
    pub(super) const LIST: u16 = 9;
    const DROP: u16 = 10;

    /// Whether a request is one of these, whatever else it holds.
    #[inline]
    pub fn is_one(request: &[u8]) -> bool {
        operation_of(request).is_some_and(|operation| (Self::CREATE..=Self::DROP).contains(&operation))
    }

    /// Writes the request into `out`, replacing what it held.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let operation = match self {
            Self::Create { .. } => Self::CREATE,
            Self::List { .. } => Self::LIST,
            Self::Drop { .. } => Self::DROP,
        };
        begin(operation, out);
        match self {
            Self::Create { name, kind, region_bytes } => {
                let name = name.as_str().as_bytes();
                out.extend(kind.id().to_le_bytes());
                out.extend(length_of(name).to_le_bytes());
                out.extend(region_bytes.unwrap_or(0).to_le_bytes());
                out.extend_from_slice(name);
            }
            Self::List { after } => put_name(after.as_ref().map_or("", TableName::as_str), out),
            Self::Drop { name } => put_name(name.as_str(), out),
        }
    }

    /// Reads a request.
    ///
    /// # Errors
    /// If it is none of these, of another version, or names what no table can be called.
    pub fn decode(bytes: &[u8]) -> Result<Self, TablesError> {
        let (operation, mut body) = split(bytes)?;
        let request = match operation {
            Self::CREATE => {
                let (kind, name_bytes, region) = (body.u32()?, body.u32()?, body.u64()?);
                Self::Create {
                    name: TableName::from_bytes(body.bytes(name_bytes as usize)?)?,
                    kind: kind_of(kind)?,
                    region_bytes: (region > 0).then_some(region),
                }
            }
            Self::LIST => match take_name(&mut body)? {
                [] => Self::List { after: None },
                name => Self::List { after: Some(TableName::from_bytes(name)?) },
            },
            Self::DROP => Self::Drop { name: TableName::from_bytes(take_name(&mut body)?)? },
            other => return Err(malformed(format!("operation {other} is unknown")).into()),
        };
        end(body)?;
        Ok(request)
    }
}

/// Appends a name and its length.
fn put_name(name: &str, out: &mut Vec<u8>) {
    out.extend(u64::from(length_of(name.as_bytes())).to_le_bytes());
    out.extend_from_slice(name.as_bytes());
}

/// Takes a name after its length.
fn take_name<'a>(body: &mut Cursor<'a>) -> Result<&'a [u8], CutShort> {
    let (bytes, _zero) = (body.u32()?, body.u32()?);
    body.bytes(bytes as usize)
}

impl TablesPage {
    /// Appends the reply's body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.capacity_bytes.to_le_bytes());
        out.extend(self.granted_bytes.to_le_bytes());
        // At most `MOST_LISTED`.
        out.extend((self.tables.len() as u32).to_le_bytes());
        out.extend(u32::from(self.has_more).to_le_bytes());
        for table in &self.tables {
            let name = table.name.as_str().as_bytes();
            out.extend(table.kind.id().to_le_bytes());
            out.extend((name.len() as u32).to_le_bytes());
            for number in [table.keys, table.region_bytes, table.used_bytes, table.clients] {
                out.extend(number.to_le_bytes());
            }
            out.extend_from_slice(name);
        }
    }

    /// Reads a reply's body.
    ///
    /// # Errors
    /// If it is cut short or makes no sense.
    pub fn decode(body: &[u8]) -> Result<Self, MessageError> {
        let mut body = Cursor::new(body);
        let (capacity_bytes, granted_bytes) = (body.u64()?, body.u64()?);
        let (count, has_more) = (body.u32()? as usize, body.u32()? != 0);
        let mut tables = Vec::with_capacity(count.min(MOST_LISTED));
        for _ in 0..count {
            tables.push(take_table(&mut body)?);
        }
        end(body)?;
        Ok(Self { capacity_bytes, granted_bytes, tables, has_more })
    }
}

/// Takes a table of a list.
fn take_table(body: &mut Cursor<'_>) -> Result<TableInfo, MessageError> {
    let (kind, name_bytes, keys) = (kind_of(body.u32()?)?, body.u32()?, body.u64()?);
    let (region_bytes, used_bytes, clients) = (body.u64()?, body.u64()?, body.u64()?);
    let name = TableName::from_bytes(body.bytes(name_bytes as usize)?);
    let name = name.map_err(|error| malformed(error.to_string()))?;
    Ok(TableInfo { name, kind, keys, region_bytes, used_bytes, clients })
}

#[cfg(test)]
mod tests {
    use super::super::Request;
    use super::*;
    use crate::key_space::U64Keys;
    use crate::message::PROTOCOL_VERSION;

    fn name(name: &str) -> TableName {
        name.parse().expect(name)
    }

    fn encoded(request: &TablesRequest) -> Vec<u8> {
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        bytes
    }

    #[test]
    fn requests_have_the_drawn_bytes() {
        let create =
            TablesRequest::Create { name: name("ab"), kind: KeyKind::Bytes, region_bytes: Some(0x0102) };
        let head = |operation: u8| vec![operation, 0, PROTOCOL_VERSION as u8, 0, 0, 0, 0, 0];
        let named = |len: u8, name: &[u8]| [&[len, 0, 0, 0, 0, 0, 0, 0], name].concat();
        let body = [2, 0, 0, 0, 2, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, b'a', b'b'];
        assert_eq!(encoded(&create), [head(8), body.to_vec()].concat());
        assert_eq!(encoded(&TablesRequest::List { after: None }), [head(9), named(0, b"")].concat());
        let after = TablesRequest::List { after: Some(name("x")) };
        assert_eq!(encoded(&after), [head(9), named(1, b"x")].concat());
        assert_eq!(encoded(&TablesRequest::Drop { name: name("x") }), [head(10), named(1, b"x")].concat());
    }

    #[test]
    fn lists_have_the_drawn_bytes() {
        let table = TableInfo {
            name: name("ab"),
            kind: KeyKind::U64,
            keys: 3,
            region_bytes: 4,
            used_bytes: 5,
            clients: 6,
        };
        let page = TablesPage { capacity_bytes: 7, granted_bytes: 8, tables: vec![table], has_more: true };
        let mut bytes = Vec::new();
        page.encode(&mut bytes);
        let words: [u64; 8] = [7, 8, 1 | 1 << 32, 1 | 2 << 32, 3, 4, 5, 6];
        let drawn: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).chain(*b"ab").collect();
        assert_eq!(bytes, drawn);
        assert_eq!(TablesPage::decode(&bytes), Ok(page));
        for cut in 0..bytes.len() {
            assert!(TablesPage::decode(&bytes[..cut]).is_err(), "cut to {cut}");
        }
    }

    #[test]
    fn bad_requests_say_what_is_wrong() {
        let create = TablesRequest::Create { name: name("a"), kind: KeyKind::U64, region_bytes: None };
        let mut bytes = encoded(&create);
        assert_eq!(TablesRequest::decode(&bytes), Ok(create));
        bytes[8] = 9;
        let error = TablesRequest::decode(&bytes).expect_err("a kind").to_string();
        assert!(error.contains("kind 9"), "{error}");
        bytes[2] = 99;
        assert_eq!(TablesRequest::decode(&bytes), Err(MessageError::Version(99).into()));
        let mut drop = encoded(&TablesRequest::Drop { name: name("a") });
        drop.extend(b"/..");
        assert!(matches!(TablesRequest::decode(&drop), Err(TablesError::Message(_))), "longer than it says");
        drop[8] = 4;
        assert!(matches!(TablesRequest::decode(&drop), Err(TablesError::Name(_))));
        let mut stats = Vec::new();
        Request::Stats.encode::<U64Keys>(0, &mut stats);
        assert!(
            !TablesRequest::is_one(&stats) && TablesRequest::is_one(&drop) && !TablesRequest::is_one(&[])
        );
        assert!(Request::decode::<U64Keys>(0, &drop).is_err(), "it is no request to a table");
    }
}
