import Glibc

/// Directories with their parents.
public enum Directories {
    public static func make(_ path: String) throws(SystemError) {
        guard path.hasPrefix("/") else {
            throw SystemError(operation: "make directory", subject: path, code: EINVAL)
        }
        var made = ""
        let parts = path.split(separator: "/")
        for (index, part) in parts.enumerated() {
            made += "/" + part
            let mode: mode_t = index == parts.count - 1 ? 0o700 : 0o755
            // SAFETY: Swift passes a C string that lives for the call.
            if unsafe mkdir(made, mode) != 0, errno != EEXIST {
                throw SystemError(operation: "make directory", subject: made, code: errno)
            }
        }
    }
}
