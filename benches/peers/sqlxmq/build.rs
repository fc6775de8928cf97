//! Finds the migrations of sqlxmq. They are files beside its source that its library does not
//! carry, so the program is told where cargo has put them.

use std::error::Error;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

fn main() -> Result<(), Box<dyn Error>> {
    // Nothing is fetched: whoever builds this has the sources already.
    let output = Command::new(std::env::var("CARGO")?)
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .args(["--filter-platform", &std::env::var("TARGET")?])
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let migrations = metadata["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|package| package["name"] == "sqlxmq")
        .and_then(|package| package["manifest_path"].as_str())
        .and_then(|manifest| Path::new(manifest).parent())
        .ok_or("cargo does not know sqlxmq")?
        .join("migrations");
    println!("cargo::rerun-if-changed=Cargo.lock");
    println!("cargo::rustc-env=MIGRATIONS={}", migrations.display());
    Ok(())
}
