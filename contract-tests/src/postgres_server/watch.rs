//! A small process that cleans up, however the tests end.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Its input is a pipe that nobody writes to. It ends when this process does, killed or not.
/// Then the server is stopped, by the id in its own file, and the folder is removed.
const SCRIPT: &str = r#"
cat >/dev/null
pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null)
if [ -n "$pid" ]; then
    kill -s QUIT "$pid" 2>/dev/null
    n=0
    while kill -s 0 "$pid" 2>/dev/null && [ "$n" -lt 100 ]; do sleep 0.05; n=$((n + 1)); done
fi
rm -rf "$1"
"#;

#[derive(Debug)]
pub(super) struct Watch(Child);

impl Watch {
    pub(super) fn over(folder: &Path) -> Self {
        let mut script = Command::new("sh");
        script.args(["-c", SCRIPT, "watch"]).arg(folder);
        script
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // A group of its own: what ends the tests must not end this.
        Self(script.process_group(0).spawn().expect("a shell runs"))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().ok();
    }
}
