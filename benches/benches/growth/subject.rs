//! The engines, and fresh databases on them.

use std::sync::OnceLock;

use alkstore::{BoxedStore, Store};
use alkstore_contract_tests::postgres_server::{Database, PostgresServer, ServerOptions};
use alkstore_postgres::Postgres;
use alkstore_sqlite::Sqlite;
use tempfile::TempDir;

use crate::arguments::Arguments;

/// An engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Sqlite,
    Postgres,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }

    /// Those that were asked for.
    pub(crate) fn asked(arguments: &Arguments) -> impl Iterator<Item = Self> {
        [Self::Sqlite, Self::Postgres]
            .into_iter()
            .filter(|kind| arguments.on(kind.name()))
    }

    /// Opens a database. Behind the box a call costs some nanoseconds more, which these tables
    /// do not show.
    pub(crate) async fn open(self, url: &str) -> BoxedStore {
        let opened = match self {
            Self::Sqlite => Store::<Sqlite>::open(url).await.map(Store::boxed),
            Self::Postgres => Store::<Postgres>::open(url).await.map(Store::boxed),
        };
        opened.expect("the database opens")
    }

    /// A database of its own, empty.
    pub(crate) fn fresh(self) -> Fresh {
        match self {
            Self::Sqlite => {
                let folder = tempfile::tempdir().expect("a temporary folder");
                let path = folder.path().join("growth.db");
                let url = path.to_str().expect("the path is text").to_owned();
                let (folder, database) = (Some(folder), None);
                Fresh {
                    url,
                    database,
                    _folder: folder,
                }
            }
            Self::Postgres => {
                let database = server().create_database();
                Fresh {
                    url: database.url(),
                    database: Some(database),
                    _folder: None,
                }
            }
        }
    }
}

/// A database that goes with this value. Its stores are closed first.
#[derive(Debug)]
pub(crate) struct Fresh {
    pub(crate) url: String,
    database: Option<Database<'static>>,
    _folder: Option<TempDir>,
}

impl Fresh {
    /// Runs SQL in it, where it is on Postgres, and returns what it prints.
    pub(crate) fn sql(&self, text: &str) -> String {
        let database = self.database.as_ref().expect("it is on Postgres");
        database.sql(text)
    }
}

/// One server for all, that waits for the disk at each commit, as servers do.
fn server() -> &'static PostgresServer {
    static SERVER: OnceLock<PostgresServer> = OnceLock::new();
    SERVER.get_or_init(|| PostgresServer::start(&ServerOptions::new().durable(true)))
}
