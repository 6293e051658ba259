import CLinux
import Glibc

/// Table of open file descriptors that a thread uses. Usually all threads of a process share one table.
public enum DescriptorTable {
    /// Gives the calling thread its own table, in which only the descriptors 0–2 and `kept` stay open.
    ///
    /// The limit of open files applies to each table, so every thread that calls this gets the whole limit. Afterwards
    /// a descriptor number means different things on different threads: an object that holds one must stay on one side.
    public static func leaveShared(keeping kept: [Int32]) throws(SystemError) {
        _ = try systemCall("unshare", "descriptor table") { tw_unshare_descriptors() }
        var first: UInt32 = 3
        for descriptor in Set(kept).sorted() where descriptor >= 3 {
            let number = UInt32(descriptor)
            if number > first { _ = tw_close_range(first, number - 1) }
            first = number + 1
        }
        _ = tw_close_range(first, .max)
    }

    /// Raises the limit of open files to the maximum that the kernel permits this process. Returns the resulting limit.
    @discardableResult
    public static func raiseLimit() -> Int {
        var limit = rlimit()
        // SAFETY: the structure is a local.
        guard unsafe getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return 1024 }
        if limit.rlim_cur < limit.rlim_max {
            limit.rlim_cur = limit.rlim_max
            _ = unsafe setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
        }
        return Int(clamping: limit.rlim_cur)
    }

    /// Returns a second descriptor for the same open file, or nil if the kernel refuses.
    public static func duplicate(_ descriptor: Int32) -> Int32? {
        let copy = dup(descriptor)
        return copy >= 0 ? copy : nil
    }
}
