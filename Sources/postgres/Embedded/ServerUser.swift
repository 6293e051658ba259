import Glibc
import System

/// User of the operating system as whom the server runs. PostgreSQL refuses to run as root, so root runs it as another
/// user.
struct ServerUser {
    let name: String
    let userID: uid_t
    let groupID: gid_t
    private let isSelf: Bool

    static func find() throws -> ServerUser {
        if getuid() != 0 {
            return ServerUser(name: "this user", userID: getuid(), groupID: getgid(), isSelf: true)
        }
        for name in ["postgres", "nobody"] {
            // SAFETY: the entry is static memory of the C library, read at once.
            if let entry = unsafe getpwnam(name) {
                return unsafe ServerUser(
                    name: name, userID: entry.pointee.pw_uid, groupID: entry.pointee.pw_gid, isSelf: false)
            }
        }
        throw EmbeddedError(
            "PostgreSQL does not run as root and there is neither a user postgres nor nobody",
            hint: "apt-get install postgresql makes one")
    }

    /// Returns the command that runs `command` as this user. If `endsWithParent` is true, the kernel stops it when this
    /// process ends.
    func running(_ command: [String], endsWithParent: Bool = false) -> [String] {
        var prefix = ["setpriv"]
        if !isSelf { prefix += ["--reuid=\(userID)", "--regid=\(groupID)", "--clear-groups"] }
        if endsWithParent { prefix += ["--pdeathsig", "INT"] }
        return prefix.count == 1 ? command : prefix + ["--"] + command
    }

    /// Creates the directory and its missing parents, and makes this user its owner.
    func prepare(_ directory: String) throws {
        try Directories.make(directory)
        guard !isSelf else { return }
        // SAFETY: Swift passes a C string that lives for the call.
        _ = try systemCall("chown", directory) { unsafe chown(directory, userID, groupID) }
        try checkReachable(directory)
    }

    /// Checks that this user can reach the directory. For example, root's home directory is closed to other users.
    private func checkReachable(_ directory: String) throws {
        var path = ""
        for part in directory.split(separator: "/").dropLast() {
            path += "/" + part
            var status = stat()
            // SAFETY: the structure is a local.
            guard unsafe stat(path, &status) == 0 else { continue }
            let mine =
                status.st_uid == userID ? mode_t(S_IXUSR) : status.st_gid == groupID ? mode_t(S_IXGRP) : mode_t(S_IXOTH)
            guard status.st_mode & mine != 0 else {
                throw EmbeddedError(
                    "user \(name), who runs PostgreSQL, may not pass \(path)",
                    hint: "choose another directory with --data-dir, e.g. /var/lib/tidewire")
            }
        }
    }

    /// Writes a small file that only this user and root may read.
    func write(_ path: String, _ text: String) throws {
        try SmallFile.write(path, text)
        // SAFETY: as above.
        if !isSelf { _ = try systemCall("chown", path) { unsafe chown(path, userID, groupID) } }
    }
}

/// Reader and writer of text files of a few kilobytes.
enum SmallFile {
    static func exists(_ path: String) -> Bool {
        // SAFETY: Swift passes a C string that lives for the call.
        unsafe access(path, F_OK) == 0
    }

    static func isExecutable(_ path: String) -> Bool {
        // SAFETY: as above.
        unsafe access(path, X_OK) == 0
    }

    static func read(_ path: String) throws(SystemError) -> String {
        // SAFETY: Swift passes a C string; the buffer holds as many bytes as are asked for.
        let file = try systemCall("open", path) { unsafe open(path, O_RDONLY | O_CLOEXEC) }
        defer { _ = close(file) }
        var text: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 64 << 10)
        while true {
            let count = try systemCall("read", path) { unsafe Glibc.read(file, &chunk, chunk.count) }
            if count == 0 { return String(decoding: text, as: UTF8.self) }
            text += chunk[..<count]
        }
    }

    static func write(_ path: String, _ text: String) throws(SystemError) {
        // SAFETY: Swift passes a C string; the array holds as many bytes as are written.
        let file = try systemCall("open", path) { unsafe open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600) }
        defer { _ = close(file) }
        let bytes = Array(text.utf8)
        _ = try systemCall("write", path) { unsafe Glibc.write(file, bytes, bytes.count) }
    }
}

/// Finder of a free TCP port on 127.0.0.1.
public enum FreePort {
    public static func find(preferring wanted: Int? = nil) throws(SystemError) -> Int {
        if let wanted, let port = try? bound(to: wanted) { return port }
        return try bound(to: 0)
    }

    private static func bound(to port: Int) throws(SystemError) -> Int {
        let socket = try systemCall("socket", "127.0.0.1") { Glibc.socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0) }
        defer { _ = close(socket) }
        // A port is free for a listener even if connections on it are still closing (TIME_WAIT).
        var yes: Int32 = 1
        // SAFETY: the option is a local of the size given.
        _ = unsafe setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, socklen_t(MemoryLayout<Int32>.size))
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = UInt16(port).bigEndian
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        // SAFETY: the address is a local of the size given.
        return try unsafe withUnsafeMutablePointer(to: &address) { pointer throws(SystemError) in
            try unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { general throws(SystemError) in
                _ = try systemCall("bind", "127.0.0.1:\(port)") { unsafe bind(socket, general, length) }
                _ = try systemCall("getsockname", "127.0.0.1") { unsafe getsockname(socket, general, &length) }
            }
            return unsafe Int(UInt16(bigEndian: pointer.pointee.sin_port))
        }
    }
}
