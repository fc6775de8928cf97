//! What is wrong with a path that cannot be opened, or should not be used.

use std::path::Path;

use super::Place;
use crate::error::Failure;

impl Place {
    /// Adds the reason why SQLite cannot open the file, where the system shows it.
    pub(super) fn unopened(&self, failure: Failure) -> Failure {
        if !failure.is_unopened() {
            failure
        } else if handles_are_used_up() {
            failure
                .explained("no file handles are left".to_owned())
                .starved()
        } else {
            match self.why_unopened() {
                Some(why) => failure.explained(why),
                None => failure,
            }
        }
    }

    fn why_unopened(&self) -> Option<String> {
        if self.memory || !self.name.is_absolute() {
            return None;
        }
        let folder = self.name.parent()?;
        if self.name.is_dir() {
            Some("it is a folder".to_owned())
        } else if !folder.exists() {
            Some(format!("its folder {folder:?} does not exist"))
        } else if !self.create && !self.name.exists() {
            Some("the file does not exist, and the mode is not `rwc`, which creates one".to_owned())
        } else {
            None
        }
    }

    /// Warns where the database lies on a file system of another host: the locks and the
    /// shared memory of WAL mode do not work among hosts, nor on every such system at all.
    pub(crate) fn warn_of_network(&self) {
        if let Some(path) = self.file()
            && let Ok(mounts) = std::fs::read_to_string("/proc/self/mountinfo")
            && let Some(kind) = network_file_system(&mounts, path)
        {
            tracing::warn!(
                path = %path.display(),
                file_system = kind,
                "the database lies on a network or FUSE file system, where SQLite's WAL mode may \
                 lose or damage data; use a local file system",
            );
        }
    }
}

/// Whether the process, or the system, cannot open any file more.
fn handles_are_used_up() -> bool {
    const SYSTEM: i32 = 23;
    const PROCESS: i32 = 24;
    // Never a database's file: closing it would drop the locks on it.
    let opened = std::fs::File::open("/");
    cfg!(unix) && opened.is_err_and(|error| matches!(error.raw_os_error(), Some(SYSTEM | PROCESS)))
}

/// The type of the file system that holds a path, if its files may be another host's. Reads the
/// format of Linux; other systems are not told.
fn network_file_system<'m>(mounts: &'m str, path: &Path) -> Option<&'m str> {
    const NETWORK: [&str; 15] = [
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "9p",
        "virtiofs",
        "afs",
        "ceph",
        "lustre",
        "gfs2",
        "ocfs2",
        "glusterfs",
        "ncpfs",
        "fuse",
    ];
    let mount = |line: &'m str| {
        let (before, after) = line.split_once(" - ")?;
        let point = before.split(' ').nth(4)?;
        let kind = after.split(' ').next()?;
        // A blank within a name is written as an octal number.
        let point = point.replace("\\040", " ");
        path.starts_with(&point).then_some((point.len(), kind))
    };
    // Of mounts on the same point the last one is seen.
    let (_, kind) = mounts
        .lines()
        .filter_map(mount)
        .max_by_key(|(len, _)| *len)?;
    (NETWORK.contains(&kind) || kind.starts_with("fuse.")).then_some(kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /srv rw,relatime - nfs4 server:/srv rw,vers=4.2
31 30 8:2 / /srv/local rw - xfs /dev/sdb1 rw
32 22 0:41 / /mnt/my\\040share rw shared:2 master:1 - fuse.sshfs host:/ rw
33 22 8:3 / /usb rw - fuseblk /dev/sdc1 rw
34 22 8:4 / /over rw - ext4 /dev/sdd1 rw
35 34 0:42 / /over rw - cifs //host/share rw
";

    #[test]
    fn the_innermost_mount_tells_the_file_system() {
        for (path, kind) in [
            ("/var/app.db", None),
            ("/srv/app.db", Some("nfs4")),
            ("/srvother/app.db", None),
            ("/srv/local/app.db", None),
            ("/mnt/my share/app.db", Some("fuse.sshfs")),
            ("/usb/app.db", None),
            ("/over/app.db", Some("cifs")),
        ] {
            assert_eq!(network_file_system(MOUNTS, Path::new(path)), kind, "{path}");
        }
        assert_eq!(network_file_system("nonsense", Path::new("/app.db")), None);
    }
}
