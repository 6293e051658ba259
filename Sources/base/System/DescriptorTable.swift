import CLinux
import Glibc

/// The table of open descriptors that a thread uses; usually the whole process has one.
public enum DescriptorTable {
    /// Gives the calling thread a table of its own, in which only 0–2 and these stay open.
    ///
    /// The limit of open files holds for each table, so every thread that does this has all of it. A descriptor number
    /// then means different things on different threads: objects that hold one must stay on one side.
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

    /// Raises the limit of open files as far as we are allowed to; what it is then.
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

    /// One more number for an open descriptor.
    public static func duplicate(_ descriptor: Int32) -> Int32? {
        let copy = dup(descriptor)
        return copy >= 0 ? copy : nil
    }
}
