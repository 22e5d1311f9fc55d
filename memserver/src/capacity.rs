//! The default capacity of a memory node.

use std::fs;
use std::path::Path;

use bytesize::ByteSize;

/// An invalid capacity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CapacityError {
    /// The text is no size.
    #[error("`{0}` is not a size: write a number and a unit, for example 4GiB or 512MiB")]
    NotASize(String),
    /// Too small to hold anything.
    #[error("a capacity of {0} is too small: use at least {min}", min = ByteSize(MIN_CAPACITY))]
    TooSmall(ByteSize),
}

/// Least capacity of a memory node.
pub const MIN_CAPACITY: u64 = 64 << 10;

/// Reads a size such as `4GiB`, `512MB` or `1000000`.
pub fn parse(text: &str) -> Result<u64, CapacityError> {
    let size: ByteSize = text.parse().map_err(|_| CapacityError::NotASize(text.into()))?;
    if size.as_u64() < MIN_CAPACITY {
        return Err(CapacityError::TooSmall(size));
    }
    Ok(size.as_u64())
}

/// A quarter of the memory this process may use: of its control group's limit, or of the machine's
/// memory where that is less or there is no limit. Rounded down to whole pages of 2 MiB.
pub fn default_capacity() -> u64 {
    let root = Path::new("/");
    quarter(machine_memory(root), cgroup_limit(root))
}

/// Why a memory node with this capacity may not have it, in words: the memory that this process may
/// use, or the file system that its regions lie in, is smaller.
pub(crate) fn too_small_warning(capacity: u64, regions: Option<&Path>) -> Option<String> {
    let root = Path::new("/");
    let memory = machine_memory(root).into_iter().chain(cgroup_limit(root)).min();
    let disk = regions.and_then(|regions| {
        // The folder may be made only later.
        let mut there =
            regions.ancestors().map(|path| if path == Path::new("") { Path::new(".") } else { path });
        let found = there.find_map(|path| rustix::fs::statvfs(path).ok())?;
        Some((regions, found.f_blocks.saturating_mul(found.f_frsize)))
    });
    warning_of(capacity, memory, disk)
}

fn warning_of(capacity: u64, memory: Option<u64>, disk: Option<(&Path, u64)>) -> Option<String> {
    let iec = |bytes| ByteSize(bytes).display().iec();
    let asked = format!("the capacity of {}", iec(capacity));
    if let Some((regions, bytes)) = disk.filter(|(_, bytes)| capacity > *bytes) {
        return Some(format!(
            "{asked} is more than the file system of {} has in all, {}: tables that grow beyond that are refused more records",
            regions.display(),
            iec(bytes)
        ));
    }
    let memory = memory.filter(|memory| capacity > *memory)?;
    let then = match disk {
        Some(_) => "what of the regions is not in memory is read from their file system, which takes longer",
        None => "the operating system may end this process when its tables grow beyond that",
    };
    Some(format!("{asked} is more than the memory that this process may use, {}: {then}", iec(memory)))
}

fn quarter(machine: Option<u64>, limit: Option<u64>) -> u64 {
    const FALLBACK: u64 = 4 << 30;
    const HUGE_PAGE: u64 = 2 << 20;
    let memory = machine.into_iter().chain(limit).min().unwrap_or(FALLBACK);
    (memory / 4 / HUGE_PAGE * HUGE_PAGE).max(MIN_CAPACITY)
}

/// `MemTotal` of `/proc/meminfo`, in bytes.
fn machine_memory(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The least limit of this process's control group and those above it, versions 2 and 1.
fn cgroup_limit(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let limits = groups.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next().unwrap_or(""), parts.next().unwrap_or("/"));
        let (mount, file) = match controllers {
            "" => ("sys/fs/cgroup", "memory.max"),
            c if c.split(',').any(|c| c == "memory") => ("sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => return Vec::new(),
        };
        // Inside a container the path may name the host's hierarchy; the mount's own root is then
        // what counts.
        let relative = Path::new(path.trim_start_matches('/'));
        relative.ancestors().map(|a| root.join(mount).join(a).join(file)).collect()
    });
    limits.filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok()).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tighter_of_machine_and_group_counts() {
        assert_eq!(quarter(Some(16 << 30), Some(8 << 30)), 2 << 30);
        assert_eq!(quarter(Some(16 << 30), None), 4 << 30);
        assert_eq!(quarter(Some(16 << 30), Some(u64::MAX)), 4 << 30);
        assert_eq!(quarter(None, None), 1 << 30);
    }

    #[test]
    fn limits_are_found_in_both_versions_of_control_groups() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let put = |path: &str, text: &str| {
            let file = dir.path().join(path);
            fs::create_dir_all(file.parent().expect("has a parent")).expect("create");
            fs::write(file, text).expect("write");
        };
        put("proc/self/cgroup", "0::/user/app\n");
        assert_eq!(cgroup_limit(dir.path()), None);
        put("sys/fs/cgroup/user/memory.max", "1000000\n");
        put("sys/fs/cgroup/user/app/memory.max", "max\n");
        assert_eq!(cgroup_limit(dir.path()), Some(1_000_000));
        put("proc/self/cgroup", "5:cpu:/x\n4:memory:/box\n");
        put("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "2000000\n");
        assert_eq!(cgroup_limit(dir.path()), Some(2_000_000));
        put("proc/meminfo", "MemTotal:       100 kB\nMemFree: 1 kB\n");
        assert_eq!(machine_memory(dir.path()), Some(102_400));
    }

    #[test]
    fn a_capacity_that_there_is_not_is_doubted() {
        let (memory, regions) = (Some(8 << 30), Path::new("/dev/shm"));
        assert_eq!(warning_of(8 << 30, memory, None), None);
        assert_eq!(warning_of(900 << 30, None, None), None, "nobody knows");
        let said = |disk| warning_of(900 << 30, memory, disk).expect("a doubt");
        assert!(
            said(None).contains("900.0 GiB is more than the memory")
                && said(None).contains("end this process")
        );
        assert!(said(Some((regions, 4 << 30))).contains("the file system of /dev/shm has in all, 4.0 GiB"));
        assert!(said(Some((regions, 1 << 50))).contains("which takes longer"));
    }

    #[test]
    fn sizes_are_read_with_units_and_bad_ones_are_explained() {
        assert_eq!(parse("4GiB"), Ok(4 << 30));
        assert_eq!(parse("64MB"), Ok(64_000_000));
        assert!(parse("lots").expect_err("no number").to_string().contains("4GiB"));
        assert!(parse("1KiB").expect_err("too small").to_string().contains("at least"));
    }
}
