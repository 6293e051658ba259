import Glibc

/// Directories with their parents.
public enum Directories {
    /// The last one gets `mode`: by default it is for this user alone.
    public static func make(_ path: String, mode lastMode: UInt32 = 0o700) throws(SystemError) {
        guard path.hasPrefix("/") else {
            throw SystemError(operation: "make directory", subject: path, code: EINVAL)
        }
        var made = ""
        let parts = path.split(separator: "/")
        for (index, part) in parts.enumerated() {
            made += "/" + part
            let mode: mode_t = index == parts.count - 1 ? mode_t(lastMode) : 0o755
            // SAFETY: Swift passes a C string that lives for the call.
            if unsafe mkdir(made, mode) != 0, errno != EEXIST {
                throw SystemError(operation: "make directory", subject: made, code: errno)
            }
        }
    }
}
