//! Files of users, a line each: a secret, a name, a uid and perhaps groups, with commas between them
//! (`secret,name,uid,"group,group"`). Both the file of tokens and the file of passwords are such.

use std::{collections::HashMap, fmt, sync::Arc};

use apiserver_core::User;

/// Why a file of users cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TableError {
    /// A line has too little.
    #[error("line {line} must have at least 3 columns ({secret}, user name, user uid), found {found}")]
    Columns {
        /// Which, from 1.
        line: usize,
        /// What its first column is called.
        secret: &'static str,
        /// How many it has.
        found: usize,
    },
    /// A quote is where none can be.
    #[error("line {0} has a quote in the middle of a column, or one that does not end")]
    Quote(usize),
}

/// Users by their secrets, or by their names.
#[derive(Clone)]
pub struct UserTable {
    users: Arc<HashMap<String, (String, User)>>,
}

impl UserTable {
    /// Reads a file of tokens: users are found by their token.
    pub fn of_tokens(text: &str) -> Result<Self, TableError> {
        Self::read(text, "token", |secret, _| secret.to_owned())
    }

    /// Reads a file of passwords: users are found by their name.
    pub fn of_passwords(text: &str) -> Result<Self, TableError> {
        Self::read(text, "password", |_, name| name.to_owned())
    }

    fn read(text: &str, secret: &'static str, key: impl Fn(&str, &str) -> String) -> Result<Self, TableError> {
        let mut users = HashMap::new();
        for (line, row) in rows(text)? {
            let [first, name, uid, groups @ ..] = row.as_slice() else {
                return Err(TableError::Columns { line, secret, found: row.len() });
            };
            if first.is_empty() {
                tracing::warn!(line, "an empty {secret} in a file of users is passed over");
                continue;
            }
            let groups = groups.first().map(|groups| groups.split(',').map(str::to_owned).collect());
            let user =
                User { name: name.clone(), uid: uid.clone(), groups: groups.unwrap_or_default(), ..User::default() };
            if users.insert(key(first, name), (first.clone(), user)).is_some() {
                tracing::warn!(line, "a {secret} or user that a file of users had before: the last one counts");
            }
        }
        Ok(Self { users: Arc::new(users) })
    }

    /// What is kept under a key: the secret and whose it is.
    pub(super) fn get(&self, key: &str) -> Option<&(String, User)> {
        self.users.get(key)
    }
}

impl fmt::Debug for UserTable {
    /// Without the secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UserTable({} users)", self.users.len())
    }
}

/// The columns of every line that is not empty, and its number; a quoted column may go over lines.
fn rows(text: &str) -> Result<Vec<(usize, Vec<String>)>, TableError> {
    let (mut rows, mut row, mut field) = (Vec::new(), Vec::new(), String::new());
    let (mut line, mut first, mut quoted, mut was_quoted) = (1, 1, false, false);
    let mut chars = text.chars().filter(|c| *c != '\r').chain(std::iter::once('\n')).peekable();
    while let Some(c) = chars.next() {
        let ends_line = c == '\n';
        match c {
            '"' if quoted && chars.next_if_eq(&'"').is_some() => field.push('"'),
            '"' if quoted => quoted = false,
            '"' if field.is_empty() && !was_quoted => (quoted, was_quoted) = (true, true),
            '\n' if quoted && chars.peek().is_none() => return Err(TableError::Quote(line)),
            _ if quoted => field.push(c),
            ',' | '\n' => {
                row.push(std::mem::take(&mut field));
                was_quoted = false;
            }
            _ if was_quoted || c == '"' => return Err(TableError::Quote(line)),
            _ => field.push(c),
        }
        if ends_line {
            line += 1;
            if !quoted {
                let whole = std::mem::take(&mut row);
                if whole.len() > 1 || whole.first().is_some_and(|only| !only.is_empty()) {
                    rows.push((first, whole));
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

    fn check(text: &str, want: Result<&[&[&str]], TableError>) {
        let got = rows(text).map(|rows| rows.into_iter().map(|(_, row)| row).collect::<Vec<_>>());
        let want = want.map(|rows| {
            rows.iter().map(|row| row.iter().map(|field| (*field).to_owned()).collect()).collect::<Vec<Vec<String>>>()
        });
        assert_eq!(got, want, "{text:?}");
    }

    #[test]
    fn lines_have_columns() {
        check("", Ok(&[]));
        check("\n\na,b,c\n\n", Ok(&[&["a", "b", "c"]]));
        check("a,b,c\r\nd,e,f", Ok(&[&["a", "b", "c"], &["d", "e", "f"]]));
        check("a,b,c,\"x,y\"\n", Ok(&[&["a", "b", "c", "x,y"]]));
        check("a,\"b \"\"q\"\" c\",d\n", Ok(&[&["a", "b \"q\" c", "d"]]));
        check("a,,\n", Ok(&[&["a", "", ""]]));
        check("\"a\nb\",c,d\ne", Ok(&[&["a\nb", "c", "d"], &["e"]]));
        check("\"\",b,c", Ok(&[&["", "b", "c"]]));
        check("a\"b,c,d", Err(TableError::Quote(1)));
        check("a,b,c\nd,\"e", Err(TableError::Quote(2)));
        check("a,\"b\"c,d", Err(TableError::Quote(1)));
    }

    #[test]
    fn lines_need_three_columns_and_a_secret() {
        let few = UserTable::of_tokens("t,u,1\nt,u").unwrap_err();
        assert_eq!(few.to_string(), "line 2 must have at least 3 columns (token, user name, user uid), found 2");
        let table = UserTable::of_passwords(",nobody,1\nsecret,joe,2,\"a,b\"\nother,joe,3").unwrap();
        assert!(table.get("nobody").is_none());
        assert_eq!(table.get("joe").map(|(secret, user)| (&**secret, &*user.uid)), Some(("other", "3")));
        assert_eq!(format!("{table:?}"), "UserTable(1 users)");
    }
}
