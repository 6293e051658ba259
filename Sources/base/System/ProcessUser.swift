import Glibc

/// User that this process runs as.
public enum ProcessUser {
    /// Returns the name of the user; the user's number if there is no name.
    public static func name() -> String {
        let id = getuid()
        // SAFETY: the entry is static memory of the C library, and its name ends in a zero byte; both are read at once.
        guard let entry = unsafe getpwuid(id), let name = unsafe entry.pointee.pw_name else { return String(id) }
        return unsafe String(cString: name)
    }
}
