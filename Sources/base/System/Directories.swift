import Glibc

/// Operations on directories by their paths.
public enum Directories {
    /// Creates a directory and its missing parents. The directory gets `mode`, by default access for this user alone.
    public static func make(_ path: String, mode lastMode: UInt32 = 0o700) throws(SystemError) {
        var made = path.hasPrefix("/") ? "/" : ""
        let parts = path.split(separator: "/")
        for (index, part) in parts.enumerated() {
            made += index == 0 ? String(part) : "/" + part
            let mode: mode_t = index == parts.count - 1 ? mode_t(lastMode) : 0o755
            // SAFETY: Swift passes a C string that lives for the call.
            if unsafe mkdir(made, mode) != 0, errno != EEXIST {
                throw SystemError(operation: "make directory", subject: made, code: errno)
            }
        }
    }

    /// Renames a directory. The new name must be unused or be that of an empty directory. At any time, even after a
    /// power failure, the directory has exactly one of the two names.
    public static func move(_ path: String, to newPath: String) throws(SystemError) {
        // SAFETY: Swift passes C strings that live for the call.
        _ = try systemCall("rename", path) { unsafe rename(path, newPath) }
        try DiskDirectory(parent(of: newPath)).sync()
    }

    /// True if a file, a directory or anything else exists at the path.
    public static func isThere(_ path: String) -> Bool {
        var found = stat()
        // SAFETY: as below.
        return unsafe stat(path, &found) == 0
    }

    public static func isDirectory(_ path: String) -> Bool {
        var found = stat()
        // SAFETY: Swift passes a C string that lives for the call, and the kernel fills the local structure.
        return unsafe stat(path, &found) == 0 && found.st_mode & S_IFMT == S_IFDIR
    }

    /// True if the path is a regular file, not a directory, device, pipe or socket.
    public static func isFile(_ path: String) -> Bool {
        var found = stat()
        // SAFETY: as above.
        return unsafe stat(path, &found) == 0 && found.st_mode & S_IFMT == S_IFREG
    }

    /// Removes an empty directory.
    public static func remove(_ path: String) throws(SystemError) {
        // SAFETY: Swift passes a C string that lives for the call.
        _ = try systemCall("remove directory", path) { unsafe rmdir(path) }
    }

    /// Removes a directory with its content. Symbolic links are removed, but not their targets. Stops at the first file
    /// or directory that cannot be removed.
    public static func removeAll(_ path: String) throws(SystemError) { try removeAll(path, depth: 0) }

    /// Maximum depth of a directory tree to remove. The hub's own directories are three levels deep.
    private static let deepest = 16

    private static func removeAll(_ path: String, depth: Int) throws(SystemError) {
        guard depth < deepest else { throw SystemError(operation: "remove directory", subject: path, code: ELOOP) }
        for name in try DiskDirectory(path).names() {
            let inner = path + "/" + name
            var found = stat()
            // SAFETY: Swift passes a C string that lives for the call, and the kernel fills the local structure.
            _ = try systemCall("look at", inner) { unsafe lstat(inner, &found) }
            if found.st_mode & S_IFMT == S_IFDIR {
                try removeAll(inner, depth: depth + 1)
            } else {
                // SAFETY: Swift passes a C string that lives for the call.
                _ = try systemCall("remove", inner) { unsafe unlink(inner) }
            }
        }
        try remove(path)
    }

    public static func parent(of path: String) -> String {
        let parts = path.split(separator: "/").dropLast()
        if path.hasPrefix("/") { return "/" + parts.joined(separator: "/") }
        return parts.isEmpty ? "." : parts.joined(separator: "/")
    }

    /// Returns the absolute path. A program that is started in another directory needs it.
    public static func absolute(_ path: String) throws(SystemError) -> String {
        guard !path.hasPrefix("/") else { return path }
        // SAFETY: getcwd allocates the string because it is given no room; it is copied and freed here.
        guard let here = unsafe getcwd(nil, 0) else {
            throw SystemError(operation: "find the working directory", subject: "", code: errno)
        }
        defer { unsafe free(here) }
        return unsafe String(cString: here) + "/" + path
    }
}
