//! CSV files of users: `secret,name,uid,"group,group"`. Both `--token-auth-file` and `--basic-auth-file` have this
//! format.
//!
//! The parser follows Go's `encoding/csv`, which rejects quotes inside unquoted fields; the `csv` crate accepts them.

use std::{collections::HashMap, fmt, sync::Arc};

use apiserver_core::User;

/// An invalid user file.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum UserTableError {
    /// A line has too few columns.
    #[error("line {line} must have at least 3 columns ({secret}, user name, user uid), found {found}")]
    Columns {
        /// Line number, from 1.
        line: usize,
        /// Name of the first column.
        secret: &'static str,
        /// Number of columns.
        found: usize,
    },
    /// A quote is misplaced or not terminated.
    #[error("line {0} has a quote in the middle of a column, or one that does not end")]
    Quote(usize),
}

/// Users by token or by name.
#[derive(Clone)]
pub struct UserTable {
    users: Arc<HashMap<String, (String, User)>>,
}

impl UserTable {
    /// Parses a token file; users are found by token.
    pub fn from_token_file(text: &str) -> Result<Self, UserTableError> {
        Self::parse_users(text, "token", |secret, _| secret.to_owned())
    }

    /// Parses a password file; users are found by name.
    pub fn from_password_file(text: &str) -> Result<Self, UserTableError> {
        Self::parse_users(text, "password", |_, name| name.to_owned())
    }

    fn parse_users(
        text: &str,
        secret: &'static str,
        key: impl Fn(&str, &str) -> String,
    ) -> Result<Self, UserTableError> {
        let mut users = HashMap::new();
        for (line, row) in parse_rows(text)? {
            let [first, name, uid, groups @ ..] = row.as_slice() else {
                return Err(UserTableError::Columns { line, secret, found: row.len() });
            };
            if first.is_empty() {
                tracing::warn!(line, column = secret, "user file: empty secret, skipping the line");
                continue;
            }
            let groups = groups.first().map(|groups| groups.split(',').map(str::to_owned).collect());
            let user =
                User { name: name.clone(), uid: uid.clone(), groups: groups.unwrap_or_default(), ..User::default() };
            if users.insert(key(first, name), (first.clone(), user)).is_some() {
                tracing::warn!(line, column = secret, "user file: duplicate entry, the last one wins");
            }
        }
        Ok(Self { users: Arc::new(users) })
    }

    /// Returns the secret and user of a key.
    pub(super) fn get(&self, key: &str) -> Option<&(String, User)> {
        self.users.get(key)
    }
}

impl fmt::Debug for UserTable {
    /// Leaves out the secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UserTable({} users)", self.users.len())
    }
}

/// Returns the fields of every non-empty line with its number; a quoted field may span lines.
fn parse_rows(text: &str) -> Result<Vec<(usize, Vec<String>)>, UserTableError> {
    let (mut rows, mut row, mut field) = (Vec::new(), Vec::new(), String::new());
    let (mut line, mut first, mut quoted, mut was_quoted) = (1, 1, false, false);
    let mut chars = text.chars().filter(|c| *c != '\r').chain(std::iter::once('\n')).peekable();
    while let Some(c) = chars.next() {
        let ends_line = c == '\n';
        match c {
            '"' if quoted && chars.next_if_eq(&'"').is_some() => field.push('"'),
            '"' if quoted => quoted = false,
            '"' if field.is_empty() && !was_quoted => (quoted, was_quoted) = (true, true),
            '\n' if quoted && chars.peek().is_none() => return Err(UserTableError::Quote(line)),
            _ if quoted => field.push(c),
            ',' | '\n' => {
                row.push(std::mem::take(&mut field));
                was_quoted = false;
            }
            _ if was_quoted || c == '"' => return Err(UserTableError::Quote(line)),
            _ => field.push(c),
        }
        if ends_line {
            line += 1;
            if !quoted {
                let fields = std::mem::take(&mut row);
                if fields.len() > 1 || fields.first().is_some_and(|field| !field.is_empty()) {
                    rows.push((first, fields));
                }
                first = line;
            }
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_rows(text: &str, want: Result<&[&[&str]], UserTableError>) {
        let got = parse_rows(text).map(|rows| rows.into_iter().map(|(_, row)| row).collect::<Vec<_>>());
        let want = want.map(|rows| {
            rows.iter().map(|row| row.iter().map(|field| (*field).to_owned()).collect()).collect::<Vec<Vec<String>>>()
        });
        assert_eq!(got, want, "{text:?}");
    }

    #[test]
    fn csv_is_parsed_like_encoding_csv() {
        check_rows("", Ok(&[]));
        check_rows("\n\na,b,c\n\n", Ok(&[&["a", "b", "c"]]));
        check_rows("a,b,c\r\nd,e,f", Ok(&[&["a", "b", "c"], &["d", "e", "f"]]));
        check_rows("a,b,c,\"x,y\"\n", Ok(&[&["a", "b", "c", "x,y"]]));
        check_rows("a,\"b \"\"q\"\" c\",d\n", Ok(&[&["a", "b \"q\" c", "d"]]));
        check_rows("a,,\n", Ok(&[&["a", "", ""]]));
        check_rows("\"a\nb\",c,d\ne", Ok(&[&["a\nb", "c", "d"], &["e"]]));
        check_rows("\"\",b,c", Ok(&[&["", "b", "c"]]));
        check_rows("a\"b,c,d", Err(UserTableError::Quote(1)));
        check_rows("a,b,c\nd,\"e", Err(UserTableError::Quote(2)));
        check_rows("a,\"b\"c,d", Err(UserTableError::Quote(1)));
    }

    #[test]
    fn lines_without_three_columns_are_rejected() {
        let few = UserTable::from_token_file("t,u,1\nt,u").unwrap_err();
        assert_eq!(few.to_string(), "line 2 must have at least 3 columns (token, user name, user uid), found 2");
        let table = UserTable::from_password_file(",nobody,1\nsecret,joe,2,\"a,b\"\nother,joe,3").unwrap();
        assert!(table.get("nobody").is_none());
        assert_eq!(table.get("joe").map(|(secret, user)| (&**secret, &*user.uid)), Some(("other", "3")));
        assert_eq!(format!("{table:?}"), "UserTable(1 users)");
    }
}
